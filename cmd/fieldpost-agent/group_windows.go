package main

import "os/exec"

// ownGroup: the agent is not offered on Windows, and its programs end one by one.
func ownGroup(*exec.Cmd) (end func()) { return func() {} }
