// Package clitest runs both programs as a person would: the scripts in testdata
// are the contract of the command line. There is nothing in it but tests.
package clitest
