package testenv

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var shotsDir = flag.String("shots", "", "folder for screenshots of the dashboard; empty: none")

// tab is a page of a headless Chromium that notes everything its console says is wrong.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	wrong []string // guarded by mu
}

// browser opens a tab; the test is skipped where there is no Chromium.
func browser(t *testing.T) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium on this machine; on Debian: apt-get install chromium-headless-shell")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WSURLReadTimeout(time.Minute))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // it does not run as root otherwise
	}
	alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stop := chromedp.NewContext(alloc)
	t.Cleanup(func() { stop(); stopAlloc() })
	b := &tab{t: t, ctx: ctx}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException() {
				b.mu.Lock()
				b.wrong = append(b.wrong, m.Source+" "+m.String()+" "+m.URL)
				b.mu.Unlock()
			}
		}
	}()
	b.do(chromedp.EmulateViewport(1280, 900))
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	if b.ctx.Err() == nil && chromedp.FromContext(b.ctx).Target == nil {
		ctx = b.ctx // the first call's context is the browser's life
	}
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("browser: %v; its console: %q", err, b.complaints())
	}
}

// text evaluates an expression to a string.
func (b *tab) text(expression string) (string, error) {
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
}

// shows waits until an expression's text has want in it.
func (b *tab) shows(expression, want string) {
	b.t.Helper()
	Eventually(b.t, 60*time.Second, "the page", func() error {
		got, err := b.text(expression)
		if err == nil && !strings.Contains(got, want) {
			err = fmt.Errorf("%s is %.2000q, want %q; its console: %q", expression, got, want, b.complaints())
		}
		return err
	})
}

func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.wrong...)
}

// shot keeps a picture, if -shots asks for it.
func (b *tab) shot(name string) {
	b.t.Helper()
	if *shotsDir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(*shotsDir, name+".png"), png, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
