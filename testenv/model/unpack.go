package model

// unpacking is a stub until the unpacker's core is here.
type unpacking struct{ w *world }

func newUnpacking(w *world) unpacking { return unpacking{w} }
func (u *unpacking) step()            {}
func (u *unpacking) safe() uint64     { return u.w.ledger.lastSeq }
func (u *unpacking) done() bool       { return true }
func (u *unpacking) final()           {}
