package spelling_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/spelling"
)

func TestNearest(t *testing.T) {
	fields := []string{"image", "imagePullPolicy", "name", "ports", "command", "containers", "initContainers", "env", "envFrom", "tty"}
	for word, want := range map[string]string{
		"imagee": "image", "Image": "image", "imgae": "image", "contaners": "containers", "cotnainers": "containers", "evn": "env",
		"ImagePullPolicy": "imagePullPolicy", "commands": "command", "port": "ports",
		"": "", "x": "", "volumes": "", "en": "env", strings.Repeat("image", 1000): "",
	} {
		if got := spelling.Nearest(word, slices.Values(fields)); got != want {
			t.Errorf("%.20q: got %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "", 2}, {"ab", "ba", 1}, {"abc", "abd", 1}, {"abc", "abcd", 1}, {"kitten", "sitting", 3}} {
		if got := spelling.Distance(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
