// Package alerts holds the tests of the alert rules and dashboards in packaging.
//
// They guarantee that every metric, label and value that a rule or a panel names
// is on the pages that a running hub and agent print, and that every rule fires
// on what it is for and on nothing beside it.
//
// Reading order: alerts_test.go (names), fire_test.go (what fires), promql_test.go
// (the part of PromQL that they use).
package alerts
