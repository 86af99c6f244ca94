// Package wire defines what a message looks like on disk and on the link: the
// block (FORMAT.md), the session between an agent and its hub (PROTOCOL.md), and
// the file in which a person carries blocks (EXPORT.md).
//
// It guarantees that a decoder never panics, never allocates more than its
// limits allow, and never accepts a block whose bytes were changed; that
// encoding what was decoded gives the same messages; that what an encoder
// writes a decoder accepts; and that an unknown version is reported as such,
// not as corruption.
//
// Reading order: message.go (what a publisher hands in), subject.go (which
// names are legal), flow.go (who numbered it), ranges.go (what has arrived);
// block.go (many messages as one unit of storage), encode.go and header.go (how
// a block is written), columns.go and columns_put.go (its body), decode.go and
// columns_get.go (the way back, from hands that are not trusted), cursor.go
// (reading numbers), cut.go (a part of a block); session.go (how blocks
// travel), open.go (how a session begins), frame.go and reply.go (what is said
// in it); stream.go, stream_encode.go, stream_decode.go, stream_model.go and
// stream_range.go (small blocks as one compressed stream of the session,
// STREAM.md); export.go and export_read.go (how blocks are carried).
package wire
