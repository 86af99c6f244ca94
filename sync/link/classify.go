package link

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"

	"github.com/nats-io/nats.go"
)

// classify adds the sentinel, and what to do next, to an error of NATS.
func classify(err error) error {
	switch {
	case isAny(err, nats.ErrAuthorization, nats.ErrAuthRevoked, nats.ErrNkeysNotSupported):
		return fmt.Errorf("%w refused: %w; check hub.creds, or enrol the device anew", ErrCredentials, err)
	case isAny(err, nats.ErrAuthExpired, nats.ErrAccountAuthExpired):
		return fmt.Errorf("%w expired: %w; enrol the device anew", ErrCredentials, err)
	case isAny(err, nats.ErrPermissionViolation):
		return fmt.Errorf("%w: %w; the credentials belong to another device or account, or are not of this hub", ErrPermission, err)
	case isAny(err, nats.ErrTLS, nats.ErrSecureConnRequired, nats.ErrSecureConnWanted) || isCertificate(err):
		return fmt.Errorf("%w: %w; check hub.urls (tls://) and hub.ca", ErrTLS, err)
	}
	return err
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

func isCertificate(err error) bool {
	var c *tls.CertificateVerificationError
	var r tls.RecordHeaderError
	return errors.As(err, &c) || errors.As(err, &r)
}

// redacted is the url without its password.
func redacted(rawURL string) string {
	if u, err := url.Parse(rawURL); err == nil {
		return u.Redacted()
	}
	return "(unreadable url)"
}
