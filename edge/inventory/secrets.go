package inventory

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/keys"
)

// Secrets returns the Secrets of a manifest, for islet bundle seal. Anything else in the manifest is an error.
func Secrets(f finding.File) ([]sealed.Secret, error) {
	set, err := manifest.Decode(f.Data, manifest.Options{Origin: f.Name, Source: keys.SourceLocal, Lists: true})
	if err != nil {
		return nil, err
	}
	var out []sealed.Secret
	for _, o := range set.Objects {
		secret, ok := o.(*v1.Secret)
		if !ok {
			return nil, fmt.Errorf("%s contains the %s %q: move it to another file, because only Secrets are sealed",
				f.Name, manifest.KindOf(o), o.GetName())
		}
		secret = secret.DeepCopy()
		secret.APIVersion, secret.Kind = "v1", "Secret"
		text, err := json.Marshal(secret)
		if err != nil {
			return nil, err
		}
		s, err := sealed.ReadSecret(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		out = append(out, *s)
	}
	if len(set.Pods) > 0 || len(out) == 0 {
		return nil, fmt.Errorf("%s has %d pods and %d Secrets: only files with nothing but Secrets are sealed",
			f.Name, len(set.Pods), len(out))
	}
	return out, nil
}
