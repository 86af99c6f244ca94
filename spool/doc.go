// Package spool keeps messages on disk until the hub has them.
package spool
