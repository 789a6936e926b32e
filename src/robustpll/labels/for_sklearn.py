"""What scikit-learn gets when it needs one label per row, but `y` holds candidates."""

import sys

from robustpll.errors import InputError

# These stratify rows, or choose a splitter: the likeliest class of each row suits them.
STRATIFIED = {"check_cv", "StratifiedKFold", "StratifiedGroupKFold", "StratifiedShuffleSplit"}
WRAPPED = "To combine classifiers of scikit-learn, use PLLClassifier(Wrapped({name}(...)))."
REMEDIES = {
    "CalibratedClassifierCV": "Use model.recalibrate(X, y) with rows that were not trained on; "
    "RobustPLLClassifier is calibrated by fit.",
    "BaggingClassifier": f"Use members=10 of the classifier or its method. {WRAPPED}",
    "StackingClassifier": "Use RobustPLLClassifier, which stacks networks and trees by held-out "
    f"candidates. {WRAPPED}",
    "VotingClassifier": f"Use members=10, or average predict_proba of your models. {WRAPPED}",
    "AdaBoostClassifier": WRAPPED,
    "OneVsRestClassifier": "Use the classifier itself: it knows all classes.",
}


def wants_labels() -> bool:
    """Tell whether scikit-learn asks for an array of labels, one per row.

    Raises InputError if its meta-estimators do: they would take candidates for other things. An
    array is all they ask for, so that only the calling functions tell what it is for.
    """
    frame = sys._getframe(2)
    while frame.f_globals.get("__name__", "").startswith("sklearn.") and frame.f_back:
        owner = frame.f_locals.get("self")
        names = {kind.__name__ for kind in type(owner).__mro__} | {frame.f_code.co_name}
        if names & STRATIFIED:
            return True
        for name in names & REMEDIES.keys():
            remedy = REMEDIES[name].format(name=name)
            raise InputError(f"{name} needs one label per row, but y holds candidates. {remedy}")
        frame = frame.f_back
    return False
