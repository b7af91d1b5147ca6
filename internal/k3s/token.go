package k3s

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/pattern"
)

// MaxToken is the maximum size of a token in bytes.
const MaxToken = 4096

const (
	tokenPrefix = "K10"
	// agentUser is the user of every token that has a password. An agent of k3s uses this user too, whatever user the token names.
	agentUser = "node"
)

// bootstrapToken is the pattern of kubeadm's tokens. https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
var bootstrapToken = pattern.New(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// A Token proves to a server of k3s that a machine may join, and to the machine that it has the right server.
type Token struct {
	// CAHash is the SHA-256 of the cluster's CA in hexadecimal. It is empty in a short token.
	CAHash string
	// Password is set in a server's or agent's token. Bearer is set in a bootstrap token.
	Password, Bearer string
}

// ParseToken parses a token: K10HASH::USER:PASSWORD, K10HASH::ID.SECRET, or a short token without the prefix and the hash. An error never
// contains a part of the token.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > MaxToken || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Token{}, errors.New("not a token of k3s: want one line of printable characters, as in /var/lib/rancher/k3s/server/token")
	}
	rest, full := strings.CutPrefix(text, tokenPrefix)
	if !full {
		if bootstrapToken().MatchString(text) {
			return Token{Bearer: text}, nil
		}
		return Token{Password: text}, nil
	}
	hash, credentials, _ := strings.Cut(rest, "::")
	if sum, err := hex.DecodeString(hash); err != nil || len(sum) != sha256.Size {
		return Token{}, errors.New("not a token of k3s: after K10 it has no SHA-256 of 64 hexadecimal digits and two colons")
	}
	if bootstrapToken().MatchString(credentials) {
		return Token{CAHash: strings.ToLower(hash), Bearer: credentials}, nil
	}
	_, password, ok := strings.Cut(credentials, ":")
	if !ok || password == "" {
		return Token{}, errors.New("not a token of k3s: after the two colons it has neither USER:PASSWORD nor a bootstrap token")
	}
	return Token{CAHash: strings.ToLower(hash), Password: password}, nil
}

// authorize adds the token to a request.
func (t Token) authorize(r *http.Request) {
	switch {
	case t.Bearer != "":
		r.Header.Set("Authorization", "Bearer "+t.Bearer)
	case t.Password != "":
		r.SetBasicAuth(agentUser, t.Password)
	}
}

// HashCA returns the hash of a cluster's CA, as tokens contain it, and the certificates that the hash proves. A bundle of one certificate
// has the hash of its text. A longer bundle has the hash of the root of its first certificate, so that the other certificates may change.
// Then the hash proves only the chain from the first certificate to that root: anybody can add other certificates to the bundle.
func HashCA(bundle []byte) (hash string, proven []byte, _ error) {
	all, err := parseCertificates(bundle)
	if err != nil {
		return "", nil, err
	}
	hashed, proven := bundle, bundle
	if len(all) > 1 {
		roots, others := x509.NewCertPool(), x509.NewCertPool()
		for _, c := range all[1:] {
			if len(c.AuthorityKeyId) == 0 || bytes.Equal(c.AuthorityKeyId, c.SubjectKeyId) {
				roots.AddCert(c)
			} else {
				others.AddCert(c)
			}
		}
		// The hash does not depend on the clock, which may be wrong on a board that joins.
		o := x509.VerifyOptions{Roots: roots, Intermediates: others, CurrentTime: all[0].NotBefore.Add(time.Second)}
		if chains, err := all[0].Verify(o); err == nil {
			hashed, proven = chains[0][len(chains[0])-1].Raw, nil
			for _, c := range chains[0] {
				if !c.BasicConstraintsValid || !c.IsCA { // each node has such a certificate, with its key
					return "", nil, errors.New("the bundle begins with a certificate that is not of a CA")
				}
				proven = append(proven, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
			}
		}
	}
	sum := sha256.Sum256(hashed)
	return hex.EncodeToString(sum[:]), proven, nil
}

// verify returns the certificates of a bundle that the token proves, or an error if the token is not for this bundle.
func (t Token) verify(bundle []byte) ([]byte, error) {
	hash, proven, err := HashCA(bundle)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(hash), []byte(t.CAHash)) != 1 {
		return nil, fmt.Errorf("the hash of its CA is %s, but the token has %s: it is another cluster, or somebody is between", hash,
			t.CAHash)
	}
	return proven, nil
}
