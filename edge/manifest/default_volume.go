package manifest

import (
	v1 "k8s.io/api/core/v1"
)

func defaultVolume(v *v1.Volume) {
	if v.VolumeSource == (v1.VolumeSource{}) {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		fill(&v.HostPath.Type, v1.HostPathUnset)
	case v.Image != nil:
		fillZero(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.Secret != nil {
		fill(&v.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		fill(&v.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		fill(&v.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownward(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		fill(&v.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for _, s := range v.Projected.Sources {
			if s.DownwardAPI != nil {
				defaultDownward(s.DownwardAPI.Items)
			}
			if s.ServiceAccountToken != nil {
				fill(&s.ServiceAccountToken.ExpirationSeconds, 3600)
			}
		}
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		claim := &v.Ephemeral.VolumeClaimTemplate.Spec
		fill(&claim.VolumeMode, v1.PersistentVolumeFilesystem)
		roundUp(claim.Resources.Limits)
		roundUp(claim.Resources.Requests)
	}
	defaultLegacyVolume(v)
}

func defaultDownward(items []v1.DownwardAPIVolumeFile) {
	for _, item := range items {
		defaultFieldRef(item.FieldRef)
	}
}

// defaultLegacyVolume sets the defaults of the older kinds of network volumes.
func defaultLegacyVolume(v *v1.Volume) {
	if v.ISCSI != nil {
		fillZero(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		fillZero(&v.RBD.RBDPool, "rbd")
		fillZero(&v.RBD.RadosUser, "admin")
		fillZero(&v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.AzureDisk != nil {
		fill(&v.AzureDisk.CachingMode, v1.AzureDataDiskCachingReadWrite)
		fill(&v.AzureDisk.FSType, "ext4")
		fill(&v.AzureDisk.ReadOnly, false)
		fill(&v.AzureDisk.Kind, v1.AzureSharedBlobDisk)
	}
	if v.ScaleIO != nil {
		fillZero(&v.ScaleIO.StorageMode, "ThinProvisioned")
		fillZero(&v.ScaleIO.FSType, "xfs")
	}
}
