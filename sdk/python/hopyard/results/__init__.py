"""What an experiment found, for other tools: rows, tables in files, TensorBoard, MLflow."""

from hopyard.results.rows import Kind, Results, job_results, report_results

__all__ = ["Kind", "Results", "job_results", "report_results"]
