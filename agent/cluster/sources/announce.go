package sources

import (
	"fmt"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/event"
)

// ManifestRefused is the reason in the node's event for a manifest that cannot be used, or a source that cannot be read.
const ManifestRefused = "ManifestRefused"

const (
	maxAnnounced  = 10  // number of events of one report of a source
	maxEventField = 200 // bytes of a path in a manifest
	maxEventText  = 800 // bytes of a message
)

// An announcer records an event for each new problem of a source. A problem that continues causes no further event.
type announcer struct {
	events event.Sink
	mu     sync.Mutex
	known  map[string]map[desired.Problem]bool // by source
}

// announce records an event for each problem that is new since the last report of the source.
func (a *announcer) announce(source string, problems []desired.Problem) {
	if a == nil || a.events == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before, now := a.known[source], make(map[desired.Problem]bool, len(problems))
	fresh := 0
	for _, p := range problems {
		p.Source = source
		if now[p] {
			continue
		}
		now[p] = true
		if before[p] || p.Origin == "" {
			continue
		}
		if fresh++; fresh <= maxAnnounced {
			a.events.Node(v1.EventTypeWarning, ManifestRefused, problemText(p))
		}
	}
	if fresh > maxAnnounced {
		text := fmt.Sprintf("%s: %d more problems: see islet status", source, fresh-maxAnnounced)
		a.events.Node(v1.EventTypeWarning, ManifestRefused, text)
	}
	a.known[source] = now
}

func problemText(p desired.Problem) string {
	text := p.Origin
	if p.Field != "" {
		text += ": " + shorten(p.Field, maxEventField)
	}
	return text + ": " + shorten(p.Message, maxEventText)
}

func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
