package deadletter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
)

// SplitSubject takes dead.<stream>.<original subject> apart.
func SplitSubject(s string) (stream, original string) {
	stream, original, _ = strings.Cut(strings.TrimPrefix(s, deadPrefix), ".")
	return stream, original
}

// RefuseRetry says why a letter cannot be retried; nil if it can.
func RefuseRetry(subject string, h nats.Header) error {
	stream, original := SplitSubject(subject)
	switch consumer, reason := h.Get(HdrConsumer), h.Get(HdrReason); {
	case h.Get(HdrGap) != "" || stream == "gap":
		return errors.New("it reports a gap: these messages do not exist any more; purge it when it is noted")
	case stream == store.Blocks:
		return errors.New("it is a block that cannot be decoded; a retry would not change that. Keep it for a report, or purge it")
	case stream == store.Commands:
		return errors.New("it is a command; send it again with `fieldpost-hub send`, under a new id")
	case reason != MaxDeliveries && reason != Terminated || consumer == "":
		return fmt.Errorf("no consumer has given it up (reason %.40q): there is nobody to offer it to again", reason)
	case h.Get(HdrBody) != "":
		return fmt.Errorf("it holds no message (%.40s): %.200s", h.Get(HdrBody), h.Get(HdrDetail))
	case !isLiteral(original) || original == unknown:
		return errors.New("it does not say which subject the message had")
	default:
		if err := checkToken(consumer); err != nil {
			return fmt.Errorf("the consumer's name %.80q cannot be part of the subject retry.<consumer>: %w; read the letter with `dead show` and publish it yourself", consumer, err)
		}
	}
	return nil
}

// retry is the message that RETRY gets of a letter that is not refused.
func retry(m *store.Stored, id string) store.Msg {
	stream, original := SplitSubject(m.Subject)
	out := store.Msg{Subject: retryPrefix + m.Header.Get(HdrConsumer), Header: nats.Header{}, Data: m.Data}
	for k, v := range m.Header {
		if !ofJetStream(k) && !ofLetter(k) {
			out.Header[k] = v
		}
	}
	n, err := strconv.ParseUint(m.Header.Get(HdrRetry), 10, 64)
	if err != nil || n >= maxRetries {
		n = 0
	}
	out.Header[HdrSubject] = []string{original}
	out.Header[HdrStream] = []string{stream}
	if seq := m.Header.Get(HdrStreamSeq); seq != "" {
		out.Header[HdrStreamSeq] = []string{seq}
	}
	out.Header[HdrRetry] = []string{strconv.FormatUint(n+1, 10)}
	out.Header[hdrID] = []string{id}
	return out
}

// retryID names the retry of one letter.
func retryID(deadCreated time.Time, seq uint64) string {
	return fmt.Sprintf("%s.%s.retry.%d", store.Dead, incarnation(deadCreated), seq)
}

// letterID is the key of the letter's entry in the index; empty if the letter
// has none. A header is no reason to write anywhere else.
func letterID(m *store.Stored) string {
	id := m.Header.Get(hdrID)
	if len(id) > maxKey || strings.HasPrefix(id, store.Dead+".") || strings.Count(id, ".") != 3 || !isLiteral(id) {
		return ""
	}
	return id
}

const maxKey = 3*maxToken + 32
