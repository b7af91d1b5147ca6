package keyring

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/weight"
)

// The kinds of objects that a Credential can be from.
const (
	Secret         = "Secret"
	ServiceAccount = "ServiceAccount"
)

// A Credential is what a registry may take.
type Credential struct {
	Auth *api.AuthConfig
	// From is the Secret, or the service account whose token a plugin was given. Zero: it is the node's, for
	// every pod.
	From v1.ObjectReference
}

// Credentials are those that a pod has for an image.
type Credentials struct {
	// Has are at hand, the best first.
	Has []Credential
	// Ask has plugins give more, which come after Has. It may run programs and use the network. Plugins that
	// failed are in the error; what the others gave is valid. Nil: no plugin is for the image.
	Ask func(ctx context.Context) ([]Credential, error)
	// Account tells for which service account plugins give credentials, without asking them. Nil: for none.
	Account func(ctx context.Context) (v1.ObjectReference, error)
	// Missing are the names of Secrets that could not be had.
	Missing []string
	// Scope names those who share what plugins give: a service account, else all pods of the node.
	Scope string
}

// Private reports whether an image that was pulled with one of these may be for
// fewer than all pods of the node.
func (c *Credentials) Private() bool {
	return c.Account != nil || slices.ContainsFunc(c.Has, func(h Credential) bool { return h.From.Kind != "" })
}

// hub is the registry of images that name none, as Docker has always called it.
const hub = "index.docker.io"

// A Ring holds credentials by what they are for. The host can have wildcards.
type Ring []entry

// maxMemory is what one docker configuration may take once it is decoded, in bytes. A Secret
// has 1 MiB at most.
const maxMemory = 4 << 20

type entry struct {
	place string
	Credential
}

// Add adds a credential for what a docker configuration calls by name, which may be
// a URL.
func (r *Ring) Add(name string, c Credential) {
	if place := placeOf(name); place != "" {
		*r = append(*r, entry{place, c})
	}
}

// AddFile adds what a docker configuration has: one as config.json, or one as the older
// .dockercfg. Entries that cannot be read are told, and those that can be are added. It is
// refused as a whole when it would take more than maxMemory. No error has words of the file,
// which may be secret.
func (r *Ring) AddFile(data []byte, legacy bool, from v1.ObjectReference) error {
	var file struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	var into any = &file
	if legacy {
		into = &file.Auths
	}
	if err := weight.JSON(data, into, maxMemory); err != nil {
		return fmt.Errorf("it %w", err)
	}
	if json.Unmarshal(data, into) != nil {
		return errors.New("it is not the JSON of a docker configuration")
	}
	var errs []error
	for at, raw := range file.Auths {
		auth, err := decode(raw)
		if err != nil {
			errs = append(errs, fmt.Errorf("its entry for %q: %w", at, err))
			continue
		}
		r.Add(at, Credential{auth, from})
	}
	return errors.Join(errs...)
}

// AddSecret adds what a Secret of one of the two types for registries has.
// https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets
func (r *Ring) AddSecret(s *v1.Secret) error {
	from := v1.ObjectReference{Kind: Secret, Namespace: s.Namespace, Name: s.Name, UID: s.UID}
	if data, ok := s.Data[v1.DockerConfigJsonKey]; ok && s.Type == v1.SecretTypeDockerConfigJson {
		return r.AddFile(data, false, from)
	}
	if data, ok := s.Data[v1.DockerConfigKey]; ok && s.Type == v1.SecretTypeDockercfg {
		return r.AddFile(data, true, from)
	}
	return fmt.Errorf("its type is %q, not %s or %s", s.Type, v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg)
}

func decode(raw json.RawMessage) (*api.AuthConfig, error) {
	var e struct {
		Username      string `json:"username"`
		Password      string `json:"password"`
		Auth          string `json:"auth"` // base64 of username:password
		IdentityToken string `json:"identitytoken"`
	}
	if json.Unmarshal(raw, &e) != nil {
		return nil, errors.New("it does not have the fields of one")
	}
	if e.Auth != "" {
		text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(e.Auth), "="))
		user, password, ok := strings.Cut(string(text), ":")
		if err != nil || !ok {
			return nil, errors.New("auth is not the base64 of username:password")
		}
		e.Username, e.Password = user, password
	}
	return &api.AuthConfig{Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken}, nil
}

// placeOf is the host and path of an entry's name. Empty: it is for nothing.
func placeOf(name string) string {
	if !strings.HasPrefix(name, "https://") && !strings.HasPrefix(name, "http://") {
		name = "https://" + name
	}
	u, err := url.Parse(name)
	if err != nil {
		return ""
	}
	p := u.Path
	if strings.HasPrefix(p, "/v1/") || strings.HasPrefix(p, "/v2/") {
		p = p[len("/v1"):]
	}
	if p == "/" {
		p = ""
	}
	return u.Host + p
}

// Lookup gives the credentials for an image, named in full but without tag or digest,
// those first that name it most exactly.
func (r Ring) Lookup(image string) (found []Credential) {
	sorted := slices.Clone(r)
	slices.SortStableFunc(sorted, func(a, b entry) int { return -cmp.Compare(a.place, b.place) })
	for _, e := range sorted {
		if Matches(e.place, image) {
			found = append(found, e.Credential)
		}
	}
	if len(found) > 0 || !strings.HasPrefix(image, "docker.io/") {
		return found
	}
	for _, e := range sorted {
		if e.place == hub {
			found = append(found, e.Credential)
		}
	}
	return found
}

// Matches reports whether an image, named in full, is at a place: host names label by
// label, where one of the place may have wildcards, ports for equality, and paths by
// their beginning.
func Matches(place, image string) bool {
	wantHost, wantPath, _ := strings.Cut(place, "/")
	host, at, _ := strings.Cut(image, "/")
	wantName, wantPort := split(wantHost)
	name, port := split(host)
	want, labels := strings.Split(wantName, "."), strings.Split(name, ".")
	if wantPort != port || len(want) != len(labels) || !strings.HasPrefix(at, wantPath) {
		return false
	}
	for i := range want {
		if ok, err := path.Match(want[i], labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// IsPlace reports whether a string can name a place without a scheme.
func IsPlace(s string) bool {
	_, err := url.Parse("https://" + s)
	return err == nil
}

func split(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return host, ""
}
