//go:build !unix

package main

// ownFolder allows everything: who owns a folder does not matter here.
func ownFolder(string) error { return nil }
