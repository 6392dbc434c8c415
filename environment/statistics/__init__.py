"""Statistics of every table: intervals, correlations, paired tests, and aggregates of runs over tasks.

| question | function |
|---|---|
| How sure is the median of times from several sessions? | `intervals.median_of_groups` |
| How sure is the mean of a few seeds? | `intervals.mean_of_seeds` |
| How sure is any other statistic of rows? | `intervals.bootstrap` |
| Do two quantities rise together? | `paired.pearson`, `paired.spearman` |
| Is one method better on the same seeds or graphs? | `paired.paired_test` |
| Is one program faster, by pairs that are looked at one by one? | `sequential.Evidence` |
| How good is a method over runs and tasks? | `runs.interquartile_mean`, `runs.stratified_bootstrap` |
| How probably is one method better than another? | `runs.probability_of_improvement` |

Every interval is a 95 % interval and comes as an `intervals.Estimate`. Functions that need scipy import it when they
are called: importing `scipy.stats` takes one second and 80 MiB, which a command that makes no table should not pay.
"""
