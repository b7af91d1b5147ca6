package eventtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A row contains the cells of a row of the first two tables of docs/events.md, and the pattern of
// the text.
type row struct {
	kind, reason, text, room string
	pattern                  *regexp.Regexp
}

var (
	mu          sync.Mutex
	notedEvents = map[[3]string]bool{}
)

// RecordEvent records an event that a test received. It is safe for concurrent use.
func RecordEvent(eventType, reason, message string) {
	mu.Lock()
	defer mu.Unlock()
	notedEvents[[3]string{eventType, reason, message}] = true
}

// Main runs the tests of a package and then compares their events with docs/events.md. It returns
// the exit code for TestMain. If all tests ran, every row of the package must have an event.
func Main(m *testing.M, room string) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	rows, err := readRows(eventsPage())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	mu.Lock()
	defer mu.Unlock()
	wrong := compareRows(rows, room, notedEvents, allTestsRan())
	for _, w := range wrong {
		fmt.Println(w)
	}
	return min(len(wrong), 1)
}

// allTestsRan reports whether all tests ran completely, that is, no flag selected or shortened
// tests.
func allTestsRan() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz", "test.bench", "test.short"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != f.DefValue {
			return false
		}
	}
	return true
}

// compareRows returns a line for each event without a row. If complete is true, it also returns a line for each row of the
// package without an event.
func compareRows(rows []row, room string, noted map[[3]string]bool, complete bool) (wrong []string) {
	covered := map[string]bool{}
	for e := range noted {
		found := false
		for _, r := range rows {
			if r.kind == e[0] && slices.Contains(strings.Split(r.reason, ", "), e[1]) && r.pattern.MatchString(e[2]) {
				found, covered[r.reason+r.text] = true, true
			}
		}
		if !found {
			wrong = append(wrong, fmt.Sprintf("docs/events.md does not have the event %s %s: %q", e[0], e[1], e[2]))
		}
	}
	for _, r := range rows {
		if complete && r.room == room && !covered[r.reason+r.text] {
			wrong = append(wrong, fmt.Sprintf("no test of %s has the event %s %s of docs/events.md: %s", room, r.kind, r.reason, r.text))
		}
	}
	return wrong
}

var placeholderPattern = regexp.MustCompile(`<[^>]*>`)

// readRows parses the rows of a table. A row has the form | reason | type | `text` | package |.
func readRows(path string) (rows []row, err error) {
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 || !strings.Contains(cells[2], "`") {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		r := row{kind: cells[1], reason: cells[0], text: cells[2], room: cells[3]}
		var pattern strings.Builder
		last := 0
		for _, at := range placeholderPattern.FindAllStringIndex(r.text, -1) {
			pattern.WriteString(regexp.QuoteMeta(r.text[last:at[0]]) + "(.+)")
			last = at[1]
		}
		pattern.WriteString(regexp.QuoteMeta(r.text[last:]))
		r.pattern = regexp.MustCompile(`(?s)^` + pattern.String() + `$`)
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		err = fmt.Errorf("%s has no events", path)
	}
	return rows, err
}

// eventsPage returns the path of docs/events.md, relative to the folder of the package under test.
func eventsPage() string {
	root := "."
	for range 10 {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Join("..", root)
	}
	return filepath.Join(root, "docs", "events.md")
}
