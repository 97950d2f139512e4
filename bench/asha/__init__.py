"""What `bench.asha_bench` starts in processes of their own: a trial, Ray Tune and Optuna."""
