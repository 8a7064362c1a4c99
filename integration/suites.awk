# suites.awk -v budgets=FILE — passes on the output of go test. At the end, it prints how long each suite with a budget
# in FILE took. A line of FILE is a package, without the module, and the seconds that it may take on two otherwise idle
# cores.
BEGIN {
  while ((getline line < budgets) > 0) {
    if (split(line, part, " ") == 2 && line !~ /^#/) budget[part[1]] = part[2]
  }
}
{ print; fflush() }
/^(ok  |FAIL)\t/ && $3 ~ /^[0-9.]+s$/ {
  name = $2
  sub(/^github.com\/[^\/]+\/[^\/]+\//, "", name)
  all += $3
  if (name in budget) {
    order[++count] = name
    took[name] = $3 + 0
    planned += budget[name]
  } else {
    rest += $3
  }
}
END {
  if (!count) exit
  print "==> seconds of each suite, and its budget"
  for (i = 1; i <= count; i++) {
    name = order[i]
    printf "    %-32s %6d of %6d%s\n", name, took[name], budget[name], (took[name] > budget[name] ? "  OVER BUDGET" : "")
  }
  printf "    %-32s %6d\n    %-32s %6d of %6d\n", "all others", rest, "sum", all, planned
}
