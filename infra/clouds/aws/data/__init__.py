"""Storage: EFS, FSx for Lustre, etcd's disk, and who may mount them."""
