package uplink

import (
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Event is what happened to a sender.
type Event interface{ senderEvent() }

// The events.
type (
	// Spooled tells what the spool holds: after commits, and in answer to List.
	Spooled struct {
		Flows   []wire.FlowHeld // as Source.Flows
		Current wire.Epoch      // that new messages get; zero before the first
		Known   bool            // whether Current is known at all
	}
	// Loaded answers a Load.
	Loaded struct {
		Flow wire.Flow
		From uint64
		Data []byte
		Err  error // is io.EOF if nothing is held from there on
	}
	// Linked: the connection that Dial asked for is up.
	Linked struct{ MaxPayload int }
	// Unlinked: it could not be opened, or is gone.
	Unlinked struct{ Err error }
	// OpenReplied answers a SendOpen.
	OpenReplied struct{ Reply *wire.OpenReply }
	// OpenFailed: nothing sensible answered, but the connection is good.
	OpenFailed struct{ Err error }
	// Acked is an ack of the session.
	Acked struct {
		Session string // its tag
		Ack     *wire.Ack
	}
	// Ended: the hub ended the session, or an instance knows of none.
	Ended struct {
		Session  string // its tag
		Instance string // instead of it
		Err      *wire.SessionError
	}
	// Written: the socket has taken so many bytes of frame bodies.
	Written struct{ Bytes int }
	// Awaited: somebody waits until the hub has what is accepted by now, or, if
	// Next, what is accepted next.
	Awaited struct{ Next bool }
	// Progressed: the peer made room for bytes that had been waiting.
	Progressed struct{ At time.Time }
	// TokenSaved answers a SaveToken, once the token is durable.
	TokenSaved struct{ Token string }
	// Kicked: the host's link has come up, so waiting makes no sense.
	Kicked struct{}
	// Tuned: this holds from now on, and Policy may say something else.
	Tuned struct{ Tuning }
	// HubReset: the pinned hub is forgotten.
	HubReset struct{}
	// Ticked: time has passed.
	Ticked struct{}
	// Stopped ends the session in good order; nothing follows.
	Stopped struct{}
)

// Action is what the driver has to do for a sender.
type Action interface{ senderAction() }

// The actions.
type (
	// Dial opens a connection; Linked or Unlinked answers.
	Dial struct{}
	// Hangup closes it, or stops opening it. Nothing that comes of it counts any more.
	Hangup struct{}
	// List asks what the spool holds; Spooled answers.
	List struct{}
	// SendOpen requests a session; OpenReplied or OpenFailed answers.
	SendOpen struct{ Open wire.Open }
	// SendFrame sends a frame of the session, in the order of these actions.
	SendFrame struct {
		Instance string
		Frame    wire.Frame
	}
	// Load reads a block; Loaded answers.
	Load struct {
		Flow wire.Flow
		From uint64
	}
	// MarkReceived tells the spool what the hub has durably.
	MarkReceived struct {
		Flow wire.Flow
		Set  wire.Ranges
	}
	// PinHub makes the hub's id durable.
	PinHub struct{ ID string }
	// SaveToken makes the token durable; TokenSaved answers.
	SaveToken struct{ Token string }
	// Notice is something the hub has to say to a person.
	Notice struct{ Text string }
	// Redelivered counts a block that an earlier session had sent.
	Redelivered struct{}
	// Rewound counts messages that the hub had acked and lost, and that are gone here.
	Rewound struct{ Messages uint64 }
	// Sampled is the time from sending a frame to its ack.
	Sampled struct{ RTT time.Duration }
)

func (Spooled) senderEvent()     {}
func (Loaded) senderEvent()      {}
func (Linked) senderEvent()      {}
func (Unlinked) senderEvent()    {}
func (OpenReplied) senderEvent() {}
func (OpenFailed) senderEvent()  {}
func (Acked) senderEvent()       {}
func (Ended) senderEvent()       {}
func (Written) senderEvent()     {}
func (Awaited) senderEvent()     {}
func (Progressed) senderEvent()  {}
func (TokenSaved) senderEvent()  {}
func (Kicked) senderEvent()      {}
func (Tuned) senderEvent()       {}
func (HubReset) senderEvent()    {}
func (Ticked) senderEvent()      {}
func (Stopped) senderEvent()     {}

func (Dial) senderAction()         {}
func (Hangup) senderAction()       {}
func (List) senderAction()         {}
func (SendOpen) senderAction()     {}
func (SendFrame) senderAction()    {}
func (Load) senderAction()         {}
func (MarkReceived) senderAction() {}
func (PinHub) senderAction()       {}
func (SaveToken) senderAction()    {}
func (Notice) senderAction()       {}
func (Redelivered) senderAction()  {}
func (Rewound) senderAction()      {}
func (Sampled) senderAction()      {}
