package pulls

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keyring"
)

// A Policy says of which images a pod must prove that it may use them.
type Policy struct {
	mode    kubelet.ImagePullCredentialsVerificationPolicy
	allowed []string // repositories; with a / at the end, all below
}

// NewPolicy takes imagePullCredentialsVerificationPolicy and
// preloadedImagesVerificationAllowlist of a KubeletConfiguration.
func NewPolicy(mode kubelet.ImagePullCredentialsVerificationPolicy, allowlist []string) (Policy, error) {
	switch mode {
	case kubelet.NeverVerify, kubelet.NeverVerifyPreloadedImages, kubelet.NeverVerifyAllowlistedImages, kubelet.AlwaysVerify:
	default:
		return Policy{}, fmt.Errorf("imagePullCredentialsVerificationPolicy %q is none of the four: see the configuration reference", mode)
	}
	p := Policy{mode: mode}
	for _, pattern := range allowlist {
		p.allowed = append(p.allowed, strings.TrimSuffix(pattern, "*"))
	}
	return p, nil
}

// verifies reports whether an image, by its repository, is for those alone who prove
// that they may use it.
func (p Policy) verifies(repository string, pulled bool) bool {
	switch p.mode {
	case kubelet.NeverVerify:
		return false
	case kubelet.NeverVerifyPreloadedImages:
		return pulled
	case kubelet.NeverVerifyAllowlistedImages:
		return !slices.ContainsFunc(p.allowed, func(a string) bool {
			return a == repository || strings.HasSuffix(a, "/") && strings.HasPrefix(repository, a)
		})
	}
	return true
}

// maxSecrets bounds the records that matching adds to those of an image, for namespaces
// that come and go.
const maxSecrets = 100

// authorized reports whether a pod with these Secrets, and this service account, may use the
// image that was pulled so. A Secret of which the record is out of date is given as well, to be recorded: its
// content changed, or another one has the same credential. That the content of a Secret
// changed takes no access away, as in a kubelet.
func authorized(repository string, pulled []store.Pull, has []store.PullSource) (ok bool, update *store.PullSource) {
	pulled = slices.DeleteFunc(slices.Clone(pulled), func(r store.Pull) bool { return r.Name != repository })
	if slices.ContainsFunc(pulled, func(r store.Pull) bool { return r.Source.Name == "" }) {
		return true, nil
	}
	for _, s := range has {
		for _, r := range pulled {
			sameHash := len(s.Hash) > 0 && string(s.Hash) == string(r.Source.Hash)
			samePlace := s.Kind == r.Source.Kind && s.UID == r.Source.UID && s.Namespace == r.Source.Namespace && s.Name == r.Source.Name
			switch {
			case s.Kind == keyring.ServiceAccount:
				if samePlace && s.UID != "" {
					return true, nil
				}
			case sameHash && (samePlace || len(pulled) >= maxSecrets):
				return true, nil
			case sameHash, samePlace && s.UID != "" && len(pulled) < maxSecrets:
				return true, &s
			}
		}
	}
	return false, nil
}

// repositoryOf is an image's name in full, without tag and digest.
func repositoryOf(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	return named.Name(), nil
}
