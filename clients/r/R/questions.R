#' Ask
#'
#' Each function asks one question. The answer is a data frame with a row a
#' group: the groups' columns, then `value`, `standard_error`, `low` and
#' `high`, the ends of the interval. What was asked in a session before is
#' answered as it was, free of charge.
#'
#' @section Conditions:
#' `where` has a condition for each attribute, all of which must hold:
#'
#' * `sex = "female"`, `code = 3`: that value;
#' * `code = c(1, 4)`: any of these;
#' * `age = list(ge = 30, lt = 65)`: a range, with `ge`, `gt`, `le` and `lt`;
#' * `income = NA`: records without a value;
#' * `income = list(at = "upper")`: what lies at a bound.
#'
#' `any = list(list(...), list(...))` joins conditions of which one must hold,
#' `all` those that all must, and `not = list(...)` holds where these do not.
#'
#' @param s A session, as [session_open()] makes them.
#' @param where Conditions on the records: see below.
#' @param by Names of attributes: there is a row for each combination of values.
#' @param of Name of an attribute that is declared with a grid.
#' @param q The part of the records that lies below, or several of them,
#'   ascending: then there is a column `q`.
#' @param bins For some of the attributes in `by` the edges of coarser bins, as
#'   `list(age = c(15, 30, 65, 95))`, or groups of values, as
#'   `list(work = list(employed = c("full", "part"), not = "none"))`.
#' @param text A statement, as `SELECT sex, AVG(hours) FROM survey GROUP BY sex`.
#'   Its columns keep their names; behind each number `n` are `n_se`, `n_low`
#'   and `n_high`.
#' @param question Any question, as JSON in the service's own words, such as
#'   `'{"type": "cut", "left": [0, 1], "right": "all"}'`.
#' @param at_most The most that the answer may cost, in epsilon. It is refused,
#'   before anything is drawn, where it would cost more.
#' @param ... What is wanted of the answer: `within`, the largest half-width of
#'   the intervals; `confidence` of these; `adaptive = TRUE` where earlier
#'   answers made you ask; `at_most`.
#' @return A data frame of the class `curator_table`. It prints each number
#'   with its standard error, and says what is too uncertain: a standard error
#'   above a third of the value. `attr(answer, "told")` has what else the
#'   service says, such as `source`, `charged_epsilon` and `confidence`.
#' @seealso [price()] for what a question would cost.
#' @name ask
#' @examplesIf nzchar(Sys.getenv("CURATOR_API_KEY"))
#' c <- curator()
#' s <- session_open(c, "couples", epsilon = 0.2, max_queries = 20)
#' ask_count(s, where = list(inlf = 1, age = list(ge = 30, lt = 40)))
#' ask_table(s, by = c("inlf", "kidlt6"))
#' ask_mean(s, "faminc", by = "educ", bins = list(educ = c(0, 12, 13, 16, 19)))
#' ask_quantile(s, "faminc", c(0.25, 0.5))
#' ask_sql(s, "SELECT inlf, COUNT(*) FROM couples GROUP BY inlf")
#' ask(s, '{"type": "share", "of": {"inlf": 1}}')
#' session_close(s)
NULL

#' @rdname ask
#' @export
ask_count <- function(s, where = list(), ...) asked(s, question_of(where = where, ...))

#' @rdname ask
#' @export
ask_table <- function(s, by, where = list(), bins = list(), ...) {
  asked(s, question_of(by = by, where = where, bins = bins, ...))
}

#' @rdname ask
#' @export
ask_mean <- function(s, of, by = NULL, where = list(), bins = list(), ...) {
  asked(s, question_of(of = of, by = by, where = where, bins = bins, ...))
}

#' @rdname ask
#' @export
ask_quantile <- function(s, of, q = 0.5, by = NULL, where = list(), bins = list(), ...) {
  asked(s, question_of(of = of, q = q, by = by, where = where, bins = bins, ...))
}

#' @rdname ask
#' @export
ask_sql <- function(s, text, at_most = NULL) {
  if (!is_text(text)) refuse("invalid-request", "text: say one statement, in quotes")
  rows_of(call_session(s, "/sql", as.list(c(statement = text, at_most = at_most)), text))
}

#' @rdname ask
#' @export
ask <- function(s, question, ...) asked(s, question_of(question = question, ...))

#' What a question would cost
#'
#' Nothing is asked, recorded or charged. Of a statement each aggregate is a
#' question.
#'
#' @param s A session, as [session_open()] makes them.
#' @param ... The arguments of the question, by name, as for [ask_count()]
#'   (`where`), [ask_table()] (`by`), [ask_mean()] (`of`), [ask_quantile()]
#'   (`of` and `q`), [ask_sql()] (`text`) or [ask()] (`question`).
#' @return A data frame of the class `curator_price` with a row a question:
#'   `question` in words; `epsilon`, 0 where it is free; `certain`, `FALSE`
#'   where `epsilon` is the most that it may cost; `source`, what the answer
#'   would be; `half_width_low` and `half_width_high`, half the width of the
#'   narrowest and the widest interval to expect; `left`, what the session would
#'   have left.
#' @examplesIf nzchar(Sys.getenv("CURATOR_API_KEY"))
#' c <- curator()
#' s <- session_open(c, "couples", epsilon = 0.2, max_queries = 20)
#' price(s, where = list(inlf = 1))
#' price(s, of = "faminc", by = "educ", bins = list(educ = c(0, 12, 16, 19)))
#' price(s, text = "SELECT inlf, COUNT(*) FROM couples GROUP BY inlf")
#' session_close(s)
#' @export
price <- function(s, ...) {
  given <- list(...)
  if (length(given) && !all(nzchar(names(given) %||% ""))) {
    refuse("invalid-request", "price: name the arguments, as price(s, of = \"income\", by = \"sex\")")
  }
  if ("text" %in% names(given)) {
    prices <- ask_sql(s, paste("EXPLAIN", given$text))
  } else {
    told <- call_session(s, "/price", do.call(question_of, given))
    prices <- data.frame(
      question = told[["words"]], epsilon = number(told[["epsilon"]], "epsilon"), certain = told[["certain"]], source = told[["source"]],
      half_width_low = number(told[["half_width"]][1][[1]], "half_width"),
      half_width_high = number(told[["half_width"]][2][[1]], "half_width"), left = number(told[["left"]], "left")
    )
  }
  structure(prices, class = c("curator_price", "data.frame"))
}

# A question as the contract has it.
question_of <- function(..., of = NULL, q = NULL, by = NULL, where = list(), bins = list(), question = NULL) {
  wanted <- list(...)
  unknown <- setdiff(names(wanted) %||% rep("", length(wanted)), c("within", "confidence", "adaptive", "at_most"))
  if (length(unknown)) {
    refuse("invalid-query", sprintf(
      "%s: unknown; conditions are given as where = list(...), as where = list(sex = \"female\")",
      if (nzchar(unknown[1])) unknown[1] else "an argument without a name"
    ))
  }
  if (!is.null(question)) {
    made <- if (is_text(question)) parsed(question)
    if (is.null(made)) refuse("invalid-query", "question: say it as JSON, as '{\"type\": \"mean\", \"of\": \"income\"}'")
    return(c(made, wanted))
  }
  statistic <- !is.null(of)
  made <- list(type = if (!statistic) "predicate" else if (is.null(q)) "mean" else "quantile", of = of, q = q)
  if (!is.null(by)) {
    if (!statistic) made$type <- "marginal"
    made[[if (statistic) "group_by" else "attributes"]] <- several(by, "by")
  }
  if (length(bins)) made$bins <- Map(binned, named(bins, "bins"), names(bins))
  if (length(where) || identical(made$type, "predicate")) made$where <- conditions(where)
  c(made[!vapply(made, is.null, NA)], wanted)
}

# Edges of bins, or groups of values by name.
binned <- function(given, name) {
  if (is.list(given)) Map(several, named(given, "bins"), paste(name, names(given))) else several(given, name)
}

conditions <- function(where) {
  found <- named(where, "where")
  if (length(found)) Map(condition, found, names(found)) else stats::setNames(list(), character())
}

condition <- function(given, name) {
  if (name == "not") return(conditions(given))
  if (name %in% c("all", "any")) {
    if (!is.list(given) || !is.null(names(given))) {
      refuse("invalid-query", sprintf("%s: say a list of lists, as %s = list(list(a = 1), list(b = 2))", name, name))
    }
    return(lapply(given, conditions))
  }
  if (is.list(given)) {
    words <- named(given, name)
    return(Map(function(value, word) {
      if (word %in% c("in", "between")) several(value, name) else plain(value, name)
    }, words, names(words)))
  }
  if (is.null(given)) refuse("invalid-query", sprintf("%s: NULL is no value: NA stands for no value", name))
  if (is.logical(given) && !all(is.na(given))) {
    refuse("invalid-query", sprintf("%s: TRUE and FALSE are no declared values: say the label or the code", name))
  }
  if (length(given) == 1) list(equals = plain(given, name)) else list(`in` = several(given, name))
}

# A list in which each item has a name of its own.
named <- function(given, what) {
  names <- names(given) %||% rep("", length(given))
  if (!is.list(given) || !all(nzchar(names)) || anyDuplicated(names)) {
    refuse("invalid-query", sprintf(
      "%s: say a list with a name for each item, each once, as list(sex = \"female\", age = list(ge = 30, lt = 65))", what
    ))
  }
  given
}
