package hub

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/ingest"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const maxImports = 4

// importFile is POST /v1/import: the body is a portable file, stored while it
// comes.
func (h *Hub) importFile(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	switch {
	case p == nil:
		return
	case !own(w, r):
		return
	case r.Header.Get("Content-Type") != admin.ExportType:
		problem(w, http.StatusUnsupportedMediaType, "bad_request", "the body is a file of `fieldpost-agent spool export`, Content-Type "+admin.ExportType)
		return
	}
	force := false
	if v := r.URL.Query().Get("force"); v != "" {
		var err error
		if force, err = strconv.ParseBool(v); err != nil {
			problem(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("force %q is neither true nor false", v))
			return
		}
	}
	select {
	case h.imports <- struct{}{}:
		defer func() { <-h.imports }()
	default:
		problem(w, http.StatusTooManyRequests, "quota", fmt.Sprintf("%d files are imported already; wait for one of them", cap(h.imports)))
		return
	}
	done, ok := p.audited(w, r, "import", fmt.Sprintf("a file, force=%t", force))
	if !ok {
		return
	}
	rc := http.NewResponseController(w)
	rc.SetWriteDeadline(time.Time{}) // the answer comes when all is stored
	out, err := p.importFile(r, &patientBody{r.Body, rc}, force)
	rc.SetWriteDeadline(time.Now().Add(answerTimeout))
	done(fmt.Sprintf("%s: device %s, %d messages stored, %d were there", outcome(err), out.Device, out.Stored.Messages, out.Already.Messages))
	if err != nil {
		h.cfg.Log.Warn("a file was not imported to its end", "device", out.Device, "error", err, "stored", out.Stored.Messages)
		importProblem(w, out, err)
		return
	}
	h.cfg.Log.Info("a file was imported", "device", out.Device, "stored", out.Stored.Messages, "already", out.Already.Messages, "gone", out.Stored.Gone)
	writeJSON(w, out)
}

func (p *parts) importFile(r *http.Request, body io.Reader, force bool) (admin.Imported, error) {
	x, err := wire.NewExportReader(body)
	if err != nil {
		return admin.Imported{}, &ingest.ImportError{Code: ingest.ImportBadFile, Err: err}
	}
	out, err := p.ingest.Import(r.Context(), x, force)
	if n := out.Stored; err == nil || n.Messages+n.Gone > 0 {
		p.registry.Imported(out.Device)
	}
	return out, err
}

// patientBody lets a body take its time, as long as it comes.
type patientBody struct {
	io.Reader
	rc *http.ResponseController
}

func (b *patientBody) Read(p []byte) (int, error) {
	b.rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	return b.Reader.Read(p)
}

// advice says what to do about an import that ended early, and how it is answered.
var advice = map[string]struct {
	status int
	text   string
}{
	ingest.ImportWrongHub:    {409, "bring it to that hub. With --force it is stored here all the same: right if this hub has taken the other's place (then `fieldpost-agent hub reset` lets the device come here, and nothing is stored twice); if the device still goes to the other one, it sends everything there too, and both hubs have it"},
	ingest.ImportBadFile:     {400, "copy the file again, or export anew; import the result with the same command"},
	ingest.ImportHole:        {409, "import the older file of this device first, or let the device connect: it sends what is missing"},
	ingest.ImportRefused:     {422, "see the log of the hub"},
	ingest.ImportUnavailable: {503, "see `fieldpost-hub status`; then import the file again"},
	ingest.ImportStopping:    {503, "import the file again when the hub runs"},
	ingest.ImportInterrupted: {400, "import the file again"},
}

func importProblem(w http.ResponseWriter, out admin.Imported, err error) {
	var ie *ingest.ImportError
	if !errors.As(err, &ie) {
		ie = &ingest.ImportError{Code: ingest.ImportUnavailable, Err: err}
	}
	a := advice[ie.Code]
	done := ""
	if n := out.Stored.Messages + out.Already.Messages; n > 0 {
		done = fmt.Sprintf(". Of what came before, %d messages were stored and %d were there already; nothing is ever stored twice", out.Stored.Messages, out.Already.Messages)
	}
	problem(w, a.status, ie.Code, fmt.Sprintf("%v%s. What to do: %s", ie.Err, done, a.text))
}
