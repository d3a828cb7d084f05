# What people see of a number whose standard error passes a third of it.
UNCERTAIN <- "too uncertain"
# Rows of a table that are printed.
ROWS <- 40
# The columns of an answer's number and of its error.
NUMBERS <- list(value = c("standard_error", "low", "high"))

asked <- function(s, question) table_of(call_session(s, "/queries", question))

# The answer that a reply has: a row a cell, in the reply's order, of which the last axis changes first.
table_of <- function(reply) {
  labels <- lapply(reply[["axes"]], function(axis) labels_of(axis[["labels"]]))
  rows <- rev(expand.grid(rev(labels), KEEP.OUT.ATTRS = FALSE, stringsAsFactors = FALSE))
  names(rows) <- column_names(vapply(reply[["axes"]], `[[`, "", "attribute"))
  cells <- if (length(labels)) {
    reply[c("values", "standard_errors", "intervals")]
  } else {
    lapply(reply[c("value", "standard_error", "interval")], list)
  }
  count <- length(cells[[1]])
  if (length(labels) && nrow(rows) != count) protocol_error("there are not as many values as there are cells")
  cells <- lapply(cells, `%||%`, vector("list", count))
  column <- function(items, name) vapply(items, number, 0, name = name)
  end <- function(place) column(lapply(cells[[3]], function(pair) pair[place][[1]]), "interval")
  rows <- c(as.list(rows), list(
    value = column(cells[[1]], "value"), standard_error = column(cells[[2]], "standard_error"),
    low = end(1), high = end(2)
  ))
  told_of(reply[setdiff(names(reply), c("axes", names(cells)))], NUMBERS, framed(rows, count))
}

# The rows of a statement. Values of one column may be several quantiles: it is a column of lists, and printed as such.
rows_of <- function(reply) {
  of_columns <- function(what) vapply(reply[["columns"]], `[[`, "", what)
  names <- of_columns("name")
  roles <- of_columns("role")
  columns <- lapply(seq_along(names), function(place) {
    items <- lapply(reply[["rows"]], `[[`, place)
    if (any(lengths(items) > 1)) return(I(lapply(items, unlist)))
    if (roles[place] == "group") labels_of(items) else unlist(lapply(items, `%||%`, NA))
  })
  numbers <- names[roles == "value" & !vapply(columns, is.list, NA)]
  answers <- reply[["answers"]]
  told <- list(answers = answers, note = unlist(reply[["notices"]]))
  if (length(answers)) {
    told$source <- toString(unique(vapply(answers, `[[`, "", "source")))
    told$charged_epsilon <- sum(vapply(answers, `[[`, 0, "charged_epsilon"))
    told$confidence <- answers[[1]][["confidence"]]
  }
  errors <- lapply(stats::setNames(nm = numbers), paste0, c("_se", "_low", "_high"))
  told_of(told, errors, framed(stats::setNames(columns, names), length(reply[["rows"]])))
}

framed <- function(columns, count) structure(columns, class = "data.frame", row.names = seq_len(count))

told_of <- function(told, numbers, rows) {
  structure(rows, class = c("curator_table", "data.frame"), told = told, numbers = numbers)
}

# Labels as a column: numbers stay numbers, others are a factor in their order. NA is no value.
labels_of <- function(labels) {
  there <- unique(Filter(Negate(is.null), labels))
  known <- unlist(lapply(labels, `%||%`, NA))
  if (length(there) && all(vapply(there, is.numeric, NA))) as.numeric(known) else factor(known, as.character(there))
}

# An axis that is called like a number, or like another one, has an underscore behind its name.
column_names <- function(names) {
  taken <- c("value", NUMBERS$value)
  for (place in seq_along(names)) {
    while (names[place] %in% taken) names[place] <- paste0(names[place], "_")
    taken <- c(taken, names[place])
  }
  names
}

#' @export
`[.curator_table` <- function(x, ...) {
  part <- NextMethod()
  if (is.data.frame(part)) told_of(attr(x, "told"), attr(x, "numbers"), part) else part
}

#' @export
print.curator_table <- function(x, ...) {
  told <- attr(x, "told")
  numbers <- Filter(function(name) all(c(name, attr(x, "numbers")[[name]]) %in% names(x)), names(attr(x, "numbers")))
  numbers <- attr(x, "numbers")[numbers]
  if (!length(numbers) || !nrow(x)) return(NextMethod())
  cells <- cells_of(utils::head(as.data.frame(x), ROWS), numbers, paste0(format(100 * told$confidence), "% interval"))
  # One number by itself needs no head.
  alone <- nrow(x) == 1 && !nzchar(cells[1, 1])
  parts <- trimws(apply(cells, 2, paste, collapse = " "))
  cat(if (alone) toString(parts[nzchar(parts)]) else aligned(cells), sep = "\n")
  if (nrow(x) > ROWS) cat(sprintf("... and %s more\n", figure(nrow(x) - ROWS)))
  missing <- if (anyNA(x[names(numbers)])) "n/a: there may be no such records at all. Ask it of more."
  made_up <- if (isTRUE(told$dummy)) "Of made-up records."
  cat(strwrap(c(missing, made_up, cost_of(told), told$note), exdent = 2), sep = "\n")
  invisible(x)
}

# A table as text: labels, each number with its error, the interval of a single one, and what is too uncertain.
cells_of <- function(rows, numbers, interval) {
  part <- function(name, place) rows[[numbers[[name]][place]]]
  cells <- lapply(stats::setNames(nm = setdiff(names(rows), unlist(numbers))), function(name) {
    if (name %in% names(numbers)) return(shown(rows[[name]], part(name, 1)))
    ifelse(is.na(rows[[name]]), "no value", as.character(rows[[name]]))
  })
  right <- names(cells) %in% names(numbers)
  if (length(numbers) == 1 && !all(is.na(part(1, 2)))) {
    ends <- lapply(2:3, function(place) figures(part(1, place), part(1, 1)))
    cells[[interval]] <- ifelse(is.na(part(1, 2)), "", paste(ends[[1]], "to", ends[[2]]))
  }
  doubts <- lapply(names(numbers), function(name) (3 * part(name, 1) > abs(rows[[name]])) %in% TRUE)
  cells[[" "]] <- apply(matrix(unlist(doubts), nrow(rows)), 1, function(row) {
    if (any(row)) paste0(UNCERTAIN, if (length(row) > 1) paste0(" (", toString(names(numbers)[row]), ")")) else ""
  })
  head <- trimws(sub("^value$", "", names(cells)))
  structure(rbind(head, matrix(unlist(cells), nrow(rows)), deparse.level = 0), right = right)
}

# Where an answer comes from, what it cost, and what its intervals are.
cost_of <- function(told) {
  if (is.null(told$source)) return(NULL)
  cost <- if (told$charged_epsilon == 0) "free" else paste("epsilon", format(told$charged_epsilon, digits = 3))
  kind <- c(unbiased = "by construction", model = "as far as a model fits")[told$interval_kind %||% ""]
  paste0(told$source, ", ", cost, if (!is.na(kind)) paste("; intervals hold", kind))
}

#' @export
print.curator_price <- function(x, ...) {
  for (row in seq_len(nrow(x))) {
    one <- x[row, ]
    most <- if (!isTRUE(one$certain)) "at most "
    cost <- if (one$epsilon == 0) "free" else paste0("epsilon ", most, format(one$epsilon, digits = 3))
    ends <- unique(stats::na.omit(c(one$half_width_low, one$half_width_high)))
    reach <- if (length(ends)) paste0(", interval ", paste(plus_minus(), figures(ends, ends), collapse = " to "))
    cat(one$question, ": ", cost, reach, "; ", format(one$left, digits = 3), " left\n", sep = "")
  }
  invisible(x)
}

# Numbers for people, with as many decimals as the first two digits of their standard errors have; with six digits where
# these are not known.
figures <- function(values, errors) unlist(Map(figure, values, errors))

figure <- function(value, error = NA) {
  if (is.na(value)) return("n/a")
  known <- !is.na(error) && error > 0 && is.finite(error)
  decimals <- if (known) min(max(1 - floor(log10(error)), 0), 12)
  text <- if (known) sprintf("%.*f", decimals, round(value, decimals) + 0) else sprintf("%.6g", value + 0)
  prettyNum(text, big.mark = ",", preserve.width = "none")
}

shown <- function(values, errors) {
  ifelse(is.na(values), "n/a", paste(figures(values, errors), plus_minus(), figures(errors, errors)))
}

plus_minus <- function() if (l10n_info()[["UTF-8"]]) "\u00b1" else "+/-"

# Lines of a matrix of texts, in columns as wide as they need be; those that are to the right are so.
aligned <- function(cells) {
  right <- attr(cells, "right")
  columns <- lapply(seq_len(ncol(cells)), function(place) {
    room <- strrep(" ", max(wide <- nchar(cells[, place], "width")) - wide)
    if (isTRUE(right[place])) paste0(room, cells[, place]) else paste0(cells[, place], room)
  })
  sub(" +$", "", do.call(paste, c(columns, sep = "  ")))
}
