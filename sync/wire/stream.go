package wire

import (
	"fmt"
	"slices"
)

// Limits of a session's stream (STREAM.md).
const (
	MaxStreamRaw   = 128 << 10 // bytes of one frame before compression
	maxStreamIDs   = 1 << 20   // bytes of a frame's ids, written out
	streamSubjects = 1024      // subjects that a session remembers
	streamText     = 32 << 10  // bytes of them together
	streamFlows    = 16        // flows that a session remembers
	streamHead     = 64        // the most that a head takes
	streamRow      = 40        // the most that a row takes beside its texts
)

// The first byte of a frame, and the extras of a row.
const (
	headFlowKnown = 1 << 0 // the index of a flow follows
	headFlowNew   = 1 << 1 // a flow follows
	headFirst     = 1 << 2 // first is not the flow's next sequence
	headAccepted  = 1 << 3 // accepted is not the first message's time
	headBlanked   = 1 << 4
	knownHead     = headBlanked<<1 - 1

	rowUnsynced = 1 << 0
	rowBlank    = 1 << 1
	rowTTL      = 1 << 2
	rowHeaders  = 1 << 3
	rowSameSet  = 1 << 4 // the headers of the last message that had some
	rowID       = 1 << 5
	knownRow    = rowID<<1 - 1
)

// Subject references: the one that followed the subject before the last time, a
// new one, else the number of a known one plus refKnown.
const (
	refNext = iota
	refNew
	refKnown
)

// streamFlow is what a session remembers of a flow.
type streamFlow struct {
	Flow
	base, next uint64
}

// streamState is what both ends remember of the frames before. Both change it
// through the same methods, so that it never differs.
type streamState struct {
	flows    []streamFlow
	oldest   int // flow to be replaced when all places are taken
	flow     int // of the frame before
	subjects []string
	text     int      // bytes of subjects
	follows  []uint32 // by subject: which came next the last time
	lengths  []int    // by subject: of its last payload
	places   []uint32 // by subject: where the model has it
	last     int      // subject of the message before; −1: none that is known
	time     int64    // of the message before
	id       string
	headers  []Pair
	model    *streamModel
}

func newStreamState() streamState { return streamState{last: -1, model: newStreamModel()} }

func (s *streamState) addFlow(f streamFlow) {
	if len(s.flows) < streamFlows {
		s.flow = len(s.flows)
		s.flows = append(s.flows, f)
		return
	}
	s.flow = s.oldest
	s.flows[s.oldest] = f
	s.oldest = (s.oldest + 1) % streamFlows
}

// addSubject returns the number of a new subject, −1 if there is no place.
func (s *streamState) addSubject(subject string) int {
	if len(s.subjects) >= streamSubjects || s.text+len(subject) > streamText {
		return -1
	}
	s.text += len(subject)
	s.subjects = append(s.subjects, subject)
	s.follows = append(s.follows, 0)
	s.lengths = append(s.lengths, 0)
	s.places = append(s.places, 0)
	return len(s.subjects) - 1
}

// predicted is the subject that refNext means, −1 if none.
func (s *streamState) predicted() int {
	if s.last < 0 {
		return -1
	}
	return int(s.follows[s.last])
}

// arrive notes that a message of subject id (−1: not known) came.
func (s *streamState) arrive(id, length int) {
	if s.last >= 0 && id >= 0 {
		s.follows[s.last] = uint32(id)
	}
	if s.last = id; id >= 0 {
		s.lengths[id] = length
	}
}

// beginPayload tells the model that a payload of subject id (−1: not known) comes.
func (s *streamState) beginPayload(id int) {
	if id < 0 {
		s.model.beginPayload(0)
		return
	}
	s.places[id] = s.model.beginPayload(s.places[id])
}

// length is the payload length that subject id is expected to have.
func (s *streamState) length(id int) int {
	if id < 0 {
		return 0
	}
	return s.lengths[id]
}

// checkStream refuses what the decoder of a stream would refuse.
func checkStream(h *Header, ms []Message, known map[string]int) error {
	if err := checkMessages(h, ms); err != nil {
		return err
	}
	size := streamHead
	for i := range ms {
		m := &ms[i]
		_, ok := known[m.Subject]
		if size += m.Size() + streamRow + 4*len(m.Headers); ok {
			size -= len(m.Subject)
		}
		if size > MaxStreamRaw {
			return fmt.Errorf("%w: more than %d bytes; send it as a block", ErrLimit, MaxStreamRaw)
		}
		if m.Blank != 0 {
			continue
		}
		if !ok {
			if err := CheckSubject(m.Subject); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		if err := CheckHeaders(m.Headers); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if m.ID == "" {
			continue
		}
		if err := CheckID(m.ID); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// liveSubjects returns the dictionary that a block of ms would have.
func liveSubjects(ms []Message) []string {
	var out []string
	for i := range ms {
		if ms[i].Blank == 0 && (i == 0 || ms[i].Subject != ms[i-1].Subject) {
			out = append(out, ms[i].Subject)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
