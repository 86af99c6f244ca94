package agent

import (
	"fmt"

	"github.com/fieldpost/fieldpost/spool"
)

// KeyNotes says what each key of the spool is needed for, for a person who
// changes spool.key_file. It changes nothing; a spool that cannot be read now,
// or is not there, gives no notes about it.
func (c Config) KeyNotes() (notes []string) {
	c = c.withDefaults()
	uses, err := spool.Keys(c.spoolDir(), c.Spool.Keys)
	if err != nil {
		return []string{fmt.Sprintf("spool.key_file: which keys are needed cannot be told: %v", err)}
	}
	given := map[string]bool{}
	for _, key := range c.Spool.Keys {
		if len(key) > 0 {
			given[spool.KeyID(key)] = true
		}
	}
	for _, u := range uses {
		switch {
		case u.ID == "":
		case u.Current:
			notes = append(notes, fmt.Sprintf("spool.key_file: key %s encrypts new segments; %d have it", u.ID, u.Segments))
		case !given[u.ID]:
			notes = append(notes, fmt.Sprintf("spool.key_file: key %s is MISSING: %d segments need it, and the agent will not start without it", u.ID, u.Segments))
		case u.Segments > 0:
			notes = append(notes, fmt.Sprintf("spool.key_file: key %s is still needed by %d segments", u.ID, u.Segments))
		default:
			notes = append(notes, fmt.Sprintf("spool.key_file: key %s is not needed any more; its line can be removed", u.ID))
		}
	}
	return notes
}
