# Shortens the output of `go test -v`: results of packages, what failed with all
# it said, what was skipped and why. With -v summary=1: counts and the skips only.
function flush_test(name,   i) {
	for (i = 0; i < n[name]; i++) print said[name, i]
	n[name] = 0
}
/^=== (RUN|NAME|CONT|PAUSE) / { test = $3; next }
/^ *--- (PASS|FAIL|SKIP): / {
	count[$2]++
	if ($2 == "FAIL:" && !summary) { flush_test($3); print; fflush() }
	if ($2 == "SKIP:") skipped[nskipped++] = $3 ": " reason[$3]
	test = $3
	next
}
/^(ok|FAIL|panic:|fatal error:|# |\?)/ {
	if (/^FAIL\t/ || /^# /) failed = failed "\n  " $0
	if (/^panic:|^fatal error:/ && !summary) flush_test(test)
	if (!/no test files/ && !summary) { print; fflush() }
	if (/^panic:|^fatal error:|^# /) loud = 1; else loud = 0
	next
}
loud && !summary { print; next }
{
	said[test, n[test]++] = $0
	if (/^ +[A-Za-z0-9_]+\.go:[0-9]+: /) { reason[test] = $0; sub(/^ +[^ ]+ /, "", reason[test]) }
}
END {
	if (!summary) exit
	printf "\n%d passed, %d failed, %d skipped\n", count["PASS:"], count["FAIL:"], nskipped
	for (i = 0; i < nskipped; i++) print "  skipped " skipped[i]
	if (failed != "") print "failed:" failed
}
