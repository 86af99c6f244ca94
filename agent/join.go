package agent

import (
	"errors"

	"github.com/fieldpost/fieldpost/sync/link"
)

// openSpool opens the spool of the configuration.
func (a *Agent) openSpool() (store, error) { return nil, errors.New("agent: no spool in this build") }

// newNATSUplink joins the spool with the hub of the configuration.
func (a *Agent) newNATSUplink(st store) (uplinks, error) {
	_, err := link.NewNATS(link.Config{URLs: a.cfg.Hub.URLs, Device: a.device, Creds: a.cfg.Hub.Creds, CA: a.cfg.Hub.CA})
	return nil, err
}
