// What MathJax typesets, and that it loads nothing more.
window.MathJax = {
  tex: { inlineMath: [["\\(", "\\)"]], displayMath: [["\\[", "\\]"]], packages: { "[-]": ["autoload", "require"] } },
  options: { enableMenu: false, ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex" },
};
