"""Results of an experiment for other tools: rows of plain values, tables in files, TensorBoard, MLflow."""

from hopyard.results.rows import ColumnKind, Results, job_results, report_results

__all__ = ["ColumnKind", "Results", "job_results", "report_results"]
