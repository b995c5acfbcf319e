"""Write scikit-learn's handwritten digits as digits.csv: 64 shades (0 to 16) and the label in each line."""

from pathlib import Path

from sklearn.datasets import load_digits


def main(folder: Path) -> None:
    """Write the file to a folder."""
    images, labels = load_digits(return_X_y=True)
    lines = [
        ",".join(str(int(number)) for number in [*image, label]) for image, label in zip(images, labels, strict=True)
    ]
    (folder / "digits.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(__file__).parent)
