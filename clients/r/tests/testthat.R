library(testthat)
library(curatr)

test_check("curatr")
