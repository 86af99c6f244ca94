// Package webhook sends the messages of a route to a URL, for back ends that
// want to be called.
//
// It guarantees that every message of the stream is posted until the other side
// has answered 2xx, in the stream's order as long as one hub instance runs and
// nothing is refused, and at least once: an answer that gets lost makes the same batch come again, with the
// same webhook-id. What the other side refuses for good (400, 413, 415, 422) is
// sent alone, and if it is refused alone as well it is terminated with the answer
// as its reason; any other failure is the other side's, and is tried again with
// backoff for as long as it lasts, unless MaxDeliver says otherwise; what is held
// behind it was not posted, and does not count as delivered. How far a
// webhook is stands in a durable consumer, webhook-<name>, that all hub instances
// share.
//
// Requests are signed as the Standard Webhooks specification says
// (webhook-id, webhook-timestamp, webhook-signature: v1, HMAC-SHA256).
//
// Reading order: hook.go (what a webhook is), run.go (batches, retries),
// hold.go (what waits behind a failure), post.go (one request).
package webhook
