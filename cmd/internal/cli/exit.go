package cli

import (
	"errors"
	"fmt"
)

// The exit codes. 75 and 78 are EX_TEMPFAIL and EX_CONFIG of sysexits.h.
const (
	OK        = 0
	Failed    = 1
	Usage     = 2
	Temporary = 75
	BadConfig = 78
)

// ExitError is an error that asks for an exit code.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// Exit gives err the code; nil stays nil.
func Exit(code int, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{code, err}
}

// Usagef is a mistake in how the program was called.
func Usagef(format string, args ...any) error {
	return &ExitError{Usage, fmt.Errorf(format, args...)}
}

// code is what the process exits with for err.
func code(err error) int {
	var e *ExitError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &e):
		return e.Code
	}
	return Failed
}
