package realtime

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/config"
)

// A Scheduler is a scheduling policy of the kernel with its parameters.
// https://man7.org/linux/man-pages/man7/sched.7.html
type Scheduler struct {
	Policy                    string        // a policy of package config, or "" for the default
	Priority                  int           // of FIFO and RR
	Nice                      int           // of OTHER and BATCH
	Runtime, Deadline, Period time.Duration // of DEADLINE
}

// IsRealTime reports whether the policy takes precedence over all ordinary processes.
func (s Scheduler) IsRealTime() bool { return s.HasPriority() || s.Policy == config.PolicyDeadline }

// HasPriority reports whether the policy is FIFO or RR.
func (s Scheduler) HasPriority() bool {
	return s.Policy == config.PolicyFIFO || s.Policy == config.PolicyRR
}

// An IOPriority is a class of I/O priority with its level. Level 0 is the highest.
// https://man7.org/linux/man-pages/man2/ioprio_set.2.html
type IOPriority struct {
	Class string // a class of package config, or "" for the default
	Level int    // 0 to 7; 0 for the class idle
}

// Limits of the kernel.
const (
	maxValue      = 128 // maximum length of an annotation's value in bytes
	maxPriority   = 99
	minNice       = -20
	maxNice       = 19
	maxLevel      = 7
	minDLRuntime  = 2 * time.Microsecond
	minDLPeriod   = 100 * time.Microsecond
	maxDLPeriod   = 4 * time.Second
	maxLockedSize = 1 << 50
)

// ParseScheduler parses a scheduling policy with its parameters, such as "FIFO priority=20", "OTHER nice=-5", or
// "DEADLINE runtime=2ms deadline=5ms period=10ms". Without deadline, the deadline is the end of the period.
func ParseScheduler(text string) (s Scheduler, err error) {
	words, err := splitWords(text)
	if err != nil {
		return s, err
	}
	parameters := map[string][]string{
		config.PolicyOther: {"nice"}, config.PolicyBatch: {"nice"}, config.PolicyFIFO: {"priority"}, config.PolicyRR: {"priority"},
		config.PolicyDeadline: {"runtime", "deadline", "period"},
	}
	allowed, ok := parameters[words[0]]
	if !ok {
		return s, fmt.Errorf("%q is not a policy: it must be OTHER, BATCH, FIFO, RR or DEADLINE", words[0])
	}
	s.Policy = words[0]
	seen := map[string]bool{}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		if !slices.Contains(allowed, name) || seen[name] {
			return s, fmt.Errorf("%q is not a parameter of %s: its parameters are %s, once each, as name=value", word, s.Policy,
				strings.Join(allowed, ", "))
		}
		seen[name] = true
		if err := s.setParameter(name, value); err != nil {
			return s, err
		}
	}
	return s, s.complete(seen)
}

func (s *Scheduler) setParameter(name, value string) (err error) {
	switch name {
	case "priority":
		s.Priority, err = parseNumber(name, value, 1, maxPriority)
	case "nice":
		s.Nice, err = parseNumber(name, value, minNice, maxNice)
	case "runtime":
		s.Runtime, err = parseDuration(name, value)
	case "deadline":
		s.Deadline, err = parseDuration(name, value)
	case "period":
		s.Period, err = parseDuration(name, value)
	}
	return err
}

// complete sets the deadline if it was omitted, and checks that the parameters together are valid. The map contains the given parameters.
func (s *Scheduler) complete(seen map[string]bool) error {
	switch {
	case s.HasPriority() && !seen["priority"]:
		return fmt.Errorf("%s needs priority=N", s.Policy)
	case s.Policy != config.PolicyDeadline:
		return nil
	case !seen["runtime"] || !seen["period"]:
		return fmt.Errorf("DEADLINE needs runtime=DURATION and period=DURATION")
	}
	if !seen["deadline"] {
		s.Deadline = s.Period
	}
	if s.Runtime < minDLRuntime || s.Runtime > s.Deadline || s.Deadline > s.Period || s.Period < minDLPeriod || s.Period > maxDLPeriod {
		return fmt.Errorf("DEADLINE needs %v <= runtime <= deadline <= period, and a period from %v to %v", minDLRuntime, minDLPeriod,
			maxDLPeriod)
	}
	return nil
}

// String returns the text that ParseScheduler parses.
func (s Scheduler) String() string {
	switch s.Policy {
	case "":
		return ""
	case config.PolicyDeadline:
		return fmt.Sprintf("%s runtime=%v deadline=%v period=%v", s.Policy, s.Runtime, s.Deadline, s.Period)
	case config.PolicyFIFO, config.PolicyRR:
		return fmt.Sprintf("%s priority=%d", s.Policy, s.Priority)
	}
	return fmt.Sprintf("%s nice=%d", s.Policy, s.Nice)
}

// ParseIOPriority parses a class of I/O priority with its level, such as "best-effort 0" or "idle".
func ParseIOPriority(text string) (p IOPriority, err error) {
	words, err := splitWords(text)
	if err != nil {
		return p, err
	}
	switch class := words[0]; {
	case class == config.IOIdle && len(words) == 1:
		return IOPriority{Class: class}, nil
	case (class == config.IORealTime || class == config.IOBestEffort) && len(words) == 2:
		level, err := parseNumber("the level", words[1], 0, maxLevel)
		return IOPriority{Class: class, Level: level}, err
	}
	return p, fmt.Errorf("must be idle, or realtime or best-effort with a level from 0 (highest) to %d, such as %q", maxLevel,
		"best-effort 0")
}

// String returns the text that ParseIOPriority parses.
func (p IOPriority) String() string {
	if p.Class == "" || p.Class == config.IOIdle {
		return p.Class
	}
	return fmt.Sprintf("%s %d", p.Class, p.Level)
}

// parseLockedMemory parses a quantity of bytes.
func parseLockedMemory(text string) (int64, error) {
	if len(text) > maxValue {
		return 0, errTooLong
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() <= 0 || q.Value() > maxLockedSize {
		return 0, fmt.Errorf("must be a quantity of bytes, such as 64Mi")
	}
	return q.Value(), nil
}

var errTooLong = fmt.Errorf("is longer than %d bytes", maxValue)

func splitWords(text string) ([]string, error) {
	if len(text) > maxValue {
		return nil, errTooLong
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, fmt.Errorf("is empty")
	}
	return words, nil
}

func parseNumber(name, text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s is %q: it must be a number from %d to %d", name, text, least, most)
	}
	return n, nil
}

func parseDuration(name, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s is %q: it must be a duration such as 500us or 10ms", name, text)
	}
	return d, nil
}
