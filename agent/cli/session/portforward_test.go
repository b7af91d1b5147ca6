package session

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseForwarded(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{"80", "{80 80}"}, {"8080:80", "{8080 80}"}, {":80", "{0 80}"}, {"0", "0"}, {"x", "x"}, {"1:2:3", "3"}, {"70000", "70000"}, {"80:", "80:"},
	} {
		if p, err := parseForwarded(c.arg); err == nil && fmt.Sprint(p) != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", c.arg, p, err)
		}
	}
}
