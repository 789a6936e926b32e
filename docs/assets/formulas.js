// What MathJax typesets, and that it loads nothing more.
window.MathJax = {
  tex: { inlineMath: [["\\(", "\\)"]], displayMath: [["\\[", "\\]"]], packages: { "[-]": ["autoload", "require"] } },
  svg: { scale: 0.92 },
  options: { enableMenu: false, ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex" },
};
