package main

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// reading is one measured value of this machine.
type reading struct {
	Subject string  `json:"-"`
	Source  string  `json:"source"` // the file, or where else it is from
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
}

// meter reads the machine. What is not there on this one is left out.
type meter struct {
	busy, total float64 // of all CPUs since boot, when last looked
}

// read takes all readings once.
func (m *meter) read() []reading {
	var out []reading
	add := func(subject, source string, value float64, unit string) {
		out = append(out, reading{subject, source, math.Round(value*1000) / 1000, unit})
	}
	m.cpu(add)
	memory(add)
	disk(add)
	network(add)
	temperatures(add)
	if out == nil { // not Linux: at least something real
		sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
		metrics.Read(sample)
		add("host.go.memory", runtime.GOOS, float64(sample[0].Value.Uint64()), "bytes")
		add("host.time", runtime.GOOS, float64(time.Now().UnixNano()), "ns")
	}
	return out
}

type addFunc func(subject, source string, value float64, unit string)

// cpu is the busy share since the last look.
func (m *meter) cpu(add addFunc) {
	eachFields("/proc/stat", func(f []string) {
		if f[0] != "cpu" || len(f) < 6 {
			return
		}
		var total float64
		for _, s := range f[1:] {
			total += number(s)
		}
		busy := total - number(f[4]) - number(f[5]) // idle, iowait
		if dt := total - m.total; dt > 0 {
			add("host.cpu.busy", "/proc/stat", 100*(busy-m.busy)/dt, "%")
		}
		m.busy, m.total = busy, total
	})
	eachFields("/proc/loadavg", func(f []string) { add("host.cpu.load1", "/proc/loadavg", number(f[0]), "") })
}

func memory(add addFunc) {
	eachFields("/proc/meminfo", func(f []string) {
		switch f[0] {
		case "MemAvailable:", "MemFree:", "Dirty:":
			add("host.memory."+strings.ToLower(strings.TrimSuffix(f[0], ":")), "/proc/meminfo", number(f[1]), "KiB")
		}
	})
}

// disk is sectors of 512 bytes since boot, of whole disks.
func disk(add addFunc) {
	eachFields("/proc/diskstats", func(f []string) {
		if len(f) < 10 || strings.HasPrefix(f[2], "loop") || strings.HasPrefix(f[2], "ram") {
			return
		}
		if _, err := os.Stat("/sys/block/" + f[2]); err != nil {
			return
		}
		add("host.disk."+token(f[2])+".read", "/proc/diskstats", number(f[5])/2, "KiB")
		add("host.disk."+token(f[2])+".written", "/proc/diskstats", number(f[9])/2, "KiB")
	})
}

func network(add addFunc) {
	eachFields("/proc/net/dev", func(f []string) {
		name, ok := strings.CutSuffix(f[0], ":")
		if !ok || len(f) < 11 {
			return
		}
		add("host.net."+token(name)+".received", "/proc/net/dev", number(f[1]), "bytes")
		add("host.net."+token(name)+".sent", "/proc/net/dev", number(f[9]), "bytes")
	})
}

func temperatures(add addFunc) {
	files, err := filepath.Glob("/sys/class/thermal/thermal_zone*/temp")
	if err != nil { // the pattern is constant
		return
	}
	for _, file := range files {
		eachFields(file, func(f []string) {
			add("host.temperature."+token(filepath.Base(filepath.Dir(file))), file, number(f[0])/1000, "°C")
		})
	}
}

// eachFields calls fn with the fields of each line that has some. A file that is
// missing has no lines.
func eachFields(name string, fn func([]string)) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 {
			fn(fields)
		}
	}
}

func number(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return f
}

// token makes a name fit between two dots of a subject.
func token(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || strings.ContainsRune(".*>$", r) {
			return '-'
		}
		return r
	}, s)
}
