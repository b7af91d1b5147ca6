package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkProjected checks projected volumes. Each entry must have exactly one source, and the names of all files must differ.
func (r *review) checkProjected(p *field.Path, v *v1.ProjectedVolumeSource) {
	files := map[string]bool{}
	for i, s := range v.Sources {
		at := p.Child("sources").Index(i)
		sources := 0
		if s.Secret != nil {
			sources++
			r.requireText(at.Child("secret", "name"), s.Secret.Name)
			r.projectedItems(at.Child("secret", "items"), s.Secret.Items, files)
		}
		if s.ConfigMap != nil {
			sources++
			r.requireText(at.Child("configMap", "name"), s.ConfigMap.Name)
			r.projectedItems(at.Child("configMap", "items"), s.ConfigMap.Items, files)
		}
		if s.DownwardAPI != nil {
			sources++
			for j := range s.DownwardAPI.Items {
				item := at.Child("downwardAPI", "items").Index(j)
				r.downwardFile(item, &s.DownwardAPI.Items[j])
				r.addUnique(item.Child("path"), files, s.DownwardAPI.Items[j].Path)
			}
		}
		if s.ServiceAccountToken != nil {
			sources++
			r.checkToken(at.Child("serviceAccountToken"), s.ServiceAccountToken)
			r.checkUser(at.Child("serviceAccountToken", "user"), s.ServiceAccountToken.User)
		}
		if s.ClusterTrustBundle != nil {
			sources++
			r.trustBundle(at.Child("clusterTrustBundle"), s.ClusterTrustBundle, files)
			r.checkUser(at.Child("clusterTrustBundle", "user"), s.ClusterTrustBundle.User)
		}
		if s.PodCertificate != nil {
			sources++
			r.checkCertificate(at.Child("podCertificate"), s.PodCertificate, files)
			r.checkUser(at.Child("podCertificate", "user"), s.PodCertificate.User)
		}
		if sources > 1 {
			r.addForbidden(at, "may not have more than one source")
		}
	}
}

func (r *review) projectedItems(p *field.Path, items []v1.KeyToPath, files map[string]bool) {
	r.keyPaths(p, items)
	for i, item := range items {
		r.addUnique(p.Index(i).Child("path"), files, item.Path)
	}
}

func (r *review) checkToken(p *field.Path, t *v1.ServiceAccountTokenProjection) {
	if r.spec.ServiceAccountName == "" {
		r.addForbidden(p, "needs spec.serviceAccountName")
	}
	if s := *t.ExpirationSeconds; s < 600 || s > 1<<32 {
		r.addInvalid(p.Child("expirationSeconds"), s, "must be between 600 (10 minutes) and 2^32")
	}
	if r.requireText(p.Child("path"), t.Path) {
		r.checkVisible(p.Child("path"), t.Path)
	}
}

// trustBundle checks a projected ClusterTrustBundle (KEP-3257), which is selected by name or by signer. The name of a bundle with a
// signer starts with the name of the signer.
func (r *review) trustBundle(p *field.Path, b *v1.ClusterTrustBundleProjection, files map[string]bool) {
	switch {
	case (b.Name == nil) == (b.SignerName == nil):
		r.addInvalid(p, "", "must have exactly one of name and signerName")
	case b.Name != nil:
		if r.requireText(p.Child("name"), *b.Name) {
			signer := strings.LastIndex(*b.Name, ":")
			r.failIf(signer == 0, p.Child("name"), *b.Name, "must not start with ':'")
			r.checkRule(p.Child("name"), (*b.Name)[signer+1:], checkSubdomain)
		}
		r.failIf(b.LabelSelector != nil, p.Child("labelSelector"), "", "is only valid with signerName")
	default:
		r.checkSigner(p.Child("signerName"), *b.SignerName)
		r.checkSelector(p.Child("labelSelector"), b.LabelSelector)
	}
	r.requireText(p.Child("path"), b.Path)
	r.checkVisible(p.Child("path"), b.Path)
	r.addUnique(p.Child("path"), files, b.Path)
}

// checkCertificate checks a pod certificate (KEP-4317).
func (r *review) checkCertificate(p *field.Path, c *v1.PodCertificateProjection, files map[string]bool) {
	r.checkSigner(p.Child("signerName"), c.SignerName)
	for key := range c.UserAnnotations {
		r.errs = append(r.errs, validation.IsDomainPrefixedKey(p.Child("userAnnotations"), strings.ToLower(key))...)
	}
	if err := apivalidation.ValidateAnnotationsSize(c.UserAnnotations); err != nil {
		r.errs = append(r.errs, field.TooLong(p.Child("userAnnotations"), "", apivalidation.TotalAnnotationSizeLimitB))
	}
	oneOf(r, p.Child("keyType"), c.KeyType, "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
	if s := c.MaxExpirationSeconds; s != nil {
		const hour, day = 3600, 24 * 3600
		longest := int64(91 * day)
		if strings.HasPrefix(c.SignerName, "kubernetes.io/") {
			longest = day
		}
		r.inRange(p.Child("maxExpirationSeconds"), int64(*s), hour, longest)
	}
	some := false
	for _, f := range []struct{ name, path string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath},
	} {
		if f.path != "" {
			some = true
			r.checkVisible(p.Child(f.name), f.path)
			r.addUnique(p.Child(f.name), files, f.path)
		}
	}
	if !some {
		r.rejectMissing(p, "must have one of credentialBundlePath, keyPath and certificateChainPath")
	}
}

// checkSigner checks the name of a signer, such as example.com/mine. It consists of a domain with at least two labels, and a name.
func (r *review) checkSigner(p *field.Path, name string) {
	if !r.requireText(p, name) {
		return
	}
	domain, rest, _ := strings.Cut(name, "/")
	good := strings.Contains(domain, ".") && len(domain) <= validation.DNS1123SubdomainMaxLength &&
		rest != "" && len(rest) <= validation.DNS1123SubdomainMaxLength+validation.DNS1123LabelMaxLength+1
	for _, label := range strings.Split(domain, ".") {
		good = good && len(validation.IsDNS1123Label(label)) == 0
	}
	for _, label := range strings.Split(rest, ".") {
		good = good && len(validation.IsDNS1123Subdomain(label)) == 0
	}
	r.failIf(!good, p, name, "must be a domain and a name, like example.com/signer")
}
