package k3s_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/k3s/k3stest"
)

// TestParseToken checks each form of a token. No error contains the secret.
func TestParseToken(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	for text, want := range map[string]k3s.Token{
		"K10" + hash + "::server:pass:word\n":             {CAHash: hash, Password: "pass:word"},
		"K10" + strings.ToUpper(hash) + "::node:password": {CAHash: hash, Password: "password"},
		"K10" + hash + "::abcdef.0123456789abcdef":        {CAHash: hash, Bearer: "abcdef.0123456789abcdef"},
		"abcdef.0123456789abcdef":                         {Bearer: "abcdef.0123456789abcdef"},
		"password":                                        {Password: "password"},
	} {
		if got, err := k3s.ParseToken(text); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", " \n", "two words", "K10" + hash + "::SECRET", "K10" + hash + "::server:", "K10SECRET::server:SECRET", "K10" + hash, "K10",
		"K10" + hash[1:] + "::server:SECRET", "SECRET\nSECRET", "SECRET\x1b", "SECRETä", strings.Repeat("SECRET", 1000),
	} {
		if got, err := k3s.ParseToken(text); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// TestHashCA checks that the hash of one certificate is that of its text, and that only the root of a longer bundle counts.
func TestHashCA(t *testing.T) {
	s := k3stest.Start(t)
	one, _, err := k3s.HashCA(s.Serving.PEM)
	if one != s.Hash() || err != nil {
		t.Errorf("%s, %v, want %s", one, err, s.Hash())
	}
	if spaced, _, err := k3s.HashCA(append([]byte("\n"), s.Serving.PEM...)); spaced == one || err != nil {
		t.Errorf("%s, %v", spaced, err)
	}
	root := k3stest.NewCA(t, "root")
	first, _, err := k3s.HashCA(bytes.Join([][]byte{root.Issue(t, "a"), root.PEM}, nil))
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := k3s.HashCA(bytes.Join([][]byte{root.Issue(t, "b"), root.PEM}, nil))
	if first != second || err != nil {
		t.Errorf("%s and %s have the same root, %v", first, second, err)
	}
	if _, _, err := k3s.HashCA([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")); err == nil {
		t.Error("an empty certificate has a hash")
	}
}
