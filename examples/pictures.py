"""Pictures with candidate labels, and a convolutional network.

python examples/pictures.py
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from robustpll import PLLClassifier
from robustpll.datasets.noise import Uniform
from robustpll.methods import Proden, RobustPll


def main() -> None:
    digits = load_digits()
    train, test, y_train, y_test = train_test_split(
        digits.images, digits.target, test_size=0.3, random_state=0, stratify=digits.target
    )
    candidates = Uniform().apply(train, y_train, random_state=0)  # some get wrong classes besides
    print(candidates)

    for method in (RobustPll(network="lenet", epochs=30), Proden(network="lenet", epochs=30)):
        model = PLLClassifier(method, random_state=0).fit(train, candidates)
        print(
            f"{method.title}: accuracy {model.score(test, y_test):.3f}, "
            f"labels of the training pictures {(model.labels_ == y_train).mean():.3f}"
        )


if __name__ == "__main__":
    main()
