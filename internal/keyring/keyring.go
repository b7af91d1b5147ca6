package keyring

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/sorting"
)

// These are the kinds of objects that a Credential can come from.
const (
	Secret         = "Secret"
	ServiceAccount = "ServiceAccount"
)

// A Credential contains a user and password, or a token, for a registry.
type Credential struct {
	Auth *api.AuthConfig
	// From is the Secret of the credential, or the service account whose token a plugin used. If it
	// is zero, the credential belongs to the node, and every pod may use it.
	From v1.ObjectReference
}

// Credentials contains the credentials with which a pod may pull an image.
type Credentials struct {
	// Stored lists the credentials that are known without plugins. The caller should try them in
	// this order.
	Stored []Credential
	// RunPlugins runs plugins and returns their credentials. The caller should try the credentials in Stored first. A
	// plugin may use the network. The error names the plugins that failed; the credentials of the other plugins are
	// valid. RunPlugins is nil if no plugin matches the image.
	RunPlugins func(ctx context.Context) ([]Credential, error)
	// Account returns the service account whose token the plugins use. It does not run the plugins. Account is nil
	// if the plugins use no token.
	Account func(ctx context.Context) (v1.ObjectReference, error)
	// MissingSecrets contains the names of the Secrets that could not be read.
	MissingSecrets []string
	// Scope identifies the pods that share the credentials of plugins: the pods of one service
	// account, or all pods of the node.
	Scope string
}

// IsPrivate reports whether one of these credentials belongs to a Secret or a service account. Access to an image
// that was pulled with such a credential may be restricted to some pods of the node.
func (c *Credentials) IsPrivate() bool {
	return c.Account != nil || slices.ContainsFunc(c.Stored, func(h Credential) bool { return h.From.Kind != "" })
}

// dockerHub is the place of Docker Hub in docker configurations. An image name without a registry refers to Docker
// Hub.
const dockerHub = "index.docker.io"

// A Ring is a list of credentials with their places. The host of a place may contain wildcards.
type Ring []entry

// maxMemory is the maximum memory of one decoded docker configuration in bytes. A Secret has at
// most 1 MiB.
const maxMemory = 4 << 20

type entry struct {
	place string
	Credential
}

// AddPullSecrets adds the credentials of a pod's imagePullSecrets. The function get returns a Secret. AddPullSecrets returns the names of
// the Secrets that get did not return. It calls the function report for each Secret that cannot be used. See
// https://kubernetes.io/docs/concepts/containers/images/#specifying-imagepullsecrets-on-a-pod.
func (r *Ring) AddPullSecrets(
	pod *v1.Pod, get func(pod *v1.Pod, name string) (*v1.Secret, error), report func(name string, err error),
) (missing []string) {
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := get(pod, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
		} else {
			err = r.AddSecret(secret)
		}
		if err != nil {
			report(ref.Name, err)
		}
	}
	return missing
}

// LogPullSecret returns a function for AddPullSecrets that logs why a Secret cannot be used.
func LogPullSecret(log *slog.Logger, pod *v1.Pod, image string) func(name string, err error) {
	return func(name string, err error) {
		log.Warn("an image pull secret cannot be used", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID,
			"secret", name, "image", image, "error", err)
	}
}

// Add adds a credential. The parameter name is the name of an entry in a docker configuration, and
// may be a URL.
func (r *Ring) Add(name string, c Credential) {
	if place := placeOf(name); place != "" {
		*r = append(*r, entry{place, c})
	}
}

// AddFile adds the credentials of a docker configuration: a config.json, or a .dockercfg if legacy
// is set. It adds the valid entries, and returns an error that lists the invalid ones. It rejects a
// file that would take more than maxMemory when it is decoded. The errors never contain values of
// the file, because the values may be secret.
func (r *Ring) AddFile(data []byte, legacy bool, from v1.ObjectReference) error {
	var file struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	var into any = &file
	if legacy {
		into = &file.Auths
	}
	if err := inputweight.JSON(data, into, maxMemory); err != nil {
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

// AddSecret adds the credentials of a Secret. The Secret must have one of the two types for
// registries. https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets
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
		return nil, errors.New("it is not an entry with credentials")
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

// placeOf returns the host and path of an entry's name, or "" if it is invalid.
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

// Lookup returns the credentials for an image, the most specific places first. The name of the image must be complete, and have no tag and
// no digest.
func (r Ring) Lookup(image string) (found []Credential) {
	sorted := slices.Clone(r)
	sorting.StableBy(sorted, func(a, b entry) int { return -cmp.Compare(a.place, b.place) })
	for _, e := range sorted {
		if Matches(e.place, image) {
			found = append(found, e.Credential)
		}
	}
	if len(found) > 0 || !strings.HasPrefix(image, "docker.io/") {
		return found
	}
	for _, e := range sorted {
		if e.place == dockerHub {
			found = append(found, e.Credential)
		}
	}
	return found
}

// Matches reports whether an image, given by its full name, is at a place. Host names are compared
// label by label, and labels of the place may contain wildcards. The ports must be equal, and the
// image's path must begin with the place's path.
func Matches(place, image string) bool {
	wantHost, wantPath, _ := strings.Cut(place, "/")
	host, at, _ := strings.Cut(image, "/")
	wantName, wantPort := splitHost(wantHost)
	name, port := splitHost(host)
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

// IsPlace reports whether a string is valid as a place without a scheme.
func IsPlace(s string) bool {
	_, err := url.Parse("https://" + s)
	return err == nil
}

func splitHost(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return host, ""
}
