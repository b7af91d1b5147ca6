package object

import (
	"cmp"
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
)

// hub is the registry of images that name none, as Docker has always called it.
const hub = "index.docker.io"

// credentials are those of a pod, by what they are for: a host and maybe the
// beginning of a path. The host can have wildcards.
type credentials []credential

type credential struct {
	place string
	auth  *api.AuthConfig
	from  v1.ObjectReference // the Secret
}

// entry is what a docker configuration says about a place.
type entry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"` // base64 of username:password
	IdentityToken string `json:"identitytoken"`
}

// add adds what a Secret of one of the two types for registries has. Entries that
// cannot be read are told, and those that can be are added.
// https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets
func (c *credentials) add(s *v1.Secret) error {
	var file struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	var err error
	if data, ok := s.Data[v1.DockerConfigJsonKey]; ok && s.Type == v1.SecretTypeDockerConfigJson {
		err = json.Unmarshal(data, &file)
	} else if data, ok := s.Data[v1.DockerConfigKey]; ok && s.Type == v1.SecretTypeDockercfg {
		err = json.Unmarshal(data, &file.Auths)
	} else {
		return fmt.Errorf("its type is %q, not %s or %s", s.Type, v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg)
	}
	if err != nil {
		return errors.New("it is not the JSON of a docker configuration") // whose words may be secret
	}
	from := v1.ObjectReference{Kind: secretKind, Namespace: s.Namespace, Name: s.Name, UID: s.UID}
	var errs []error
	for at, raw := range file.Auths {
		auth, err := decode(raw)
		if err != nil {
			errs = append(errs, fmt.Errorf("its entry for %q: %w", at, err))
			continue
		}
		if place := placeOf(at); place != "" {
			*c = append(*c, credential{place, auth, from})
		}
	}
	return errors.Join(errs...)
}

func decode(raw json.RawMessage) (*api.AuthConfig, error) {
	var e entry
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

// placeOf is the host and path of an entry's name, which may be a URL. Empty: it is
// for nothing.
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

// lookup gives the credentials for an image, named in full but without tag or digest, and
// the Secrets that they are from.
func (c credentials) lookup(image string) (found []*api.AuthConfig, from []v1.ObjectReference) {
	slices.SortStableFunc(c, func(a, b credential) int { return -cmp.Compare(a.place, b.place) })
	for _, cred := range c {
		if matches(cred.place, image) {
			found, from = append(found, cred.auth), append(from, cred.from)
		}
	}
	if len(found) > 0 || !strings.HasPrefix(image, "docker.io/") {
		return found, from
	}
	for _, cred := range c {
		if cred.place == hub {
			found, from = append(found, cred.auth), append(from, cred.from)
		}
	}
	return found, from
}

// matches compares host names label by label, where one of the place may have
// wildcards, ports for equality, and paths by their beginning.
func matches(place, image string) bool {
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

func split(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return host, ""
}
