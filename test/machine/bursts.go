package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	sampleEvery = 20 * time.Millisecond
	burstPause  = 100 * time.Millisecond // a burst ends with a pause of this duration
)

// Bursts contains the activity of the agent and its shims during a measurement. A burst is activity without a pause of 100 ms.
type Bursts struct {
	Over   time.Duration
	Starts []time.Duration // of each burst, since the start of the measurement
	Who    []string        // the processes that ran first in each burst: agent, shims, or both

	pause  time.Duration
	active bool
}

// PerMinute returns the number of bursts a minute.
func (b *Bursts) PerMinute() float64 {
	return float64(len(b.Starts)) * float64(time.Minute) / float64(b.Over)
}

func (b *Bursts) String() string {
	var all []string
	for i, at := range b.Starts {
		all = append(all, fmt.Sprintf("%.1f s %s", at.Seconds(), b.Who[i]))
	}
	return fmt.Sprintf("over %v: %s", b.Over, strings.Join(all, ", "))
}

// add adds a sample: the processes that ran since the previous sample, which was taken the given time ago.
func (b *Bursts) add(at, since time.Duration, who string) {
	switch {
	case who == "":
		if b.pause += since; b.pause >= burstPause {
			b.active = false
		}
		return
	case !b.active:
		b.Starts, b.Who = append(b.Starts, at), append(b.Who, who)
	}
	b.active, b.pause = true, 0
}

// CountBursts counts the bursts of activity of the agent and its shims. It reads the number of times that their threads were run by the
// scheduler (/proc/PID/task/TID/schedstat) every 20 ms. The test must not use the machine meanwhile.
func (m *Machine) CountBursts(over time.Duration) *Bursts {
	m.t.Helper()
	who := map[string]string{} // by directory of the process
	for pid, cmd := range m.Processes() {
		name := "agent"
		if strings.Contains(cmd, "islet-shim") {
			name = "shims"
		}
		who[fmt.Sprintf("/proc/%d/task", pid)] = name
	}
	b := &Bursts{Over: over}
	ran := map[string]int64{}
	runs(who, ran)
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	began := time.Now()
	last := began
	for at := range tick.C {
		if at.Sub(began) > over {
			break
		}
		b.add(at.Sub(began), at.Sub(last), runs(who, ran))
		last = at
	}
	return b
}

// runs updates the number of runs of each thread, and returns the processes with a thread that ran meanwhile.
func runs(who map[string]string, ran map[string]int64) (active string) {
	for dir, name := range who {
		files, err := filepath.Glob(dir + "/*/schedstat")
		if err != nil {
			continue
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			fields := strings.Fields(string(text))
			if err != nil || len(fields) != 3 {
				continue // the thread has exited
			}
			n, err := strconv.ParseInt(fields[2], 10, 64)
			if err != nil || n == ran[file] {
				continue
			}
			ran[file] = n
			if !strings.Contains(active, name) {
				active = strings.TrimSpace(active + " " + name)
			}
		}
	}
	return active
}

// Anonymous returns the anonymous memory of the agent and of the shims in MiB.
func (m *Machine) Anonymous() map[string]float64 {
	m.t.Helper()
	sum := map[string]float64{}
	for pid, cmd := range m.Processes() {
		kib, err := rollup(pid, "Anonymous")
		if err != nil {
			continue // ended meanwhile
		}
		name := "agent"
		if strings.Contains(cmd, "islet-shim") {
			name = "shims"
		}
		sum[name] += float64(kib) / 1024
	}
	return sum
}
