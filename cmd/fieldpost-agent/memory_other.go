//go:build !linux

package main

// forgetProgram has no way here.
func forgetProgram() {}
