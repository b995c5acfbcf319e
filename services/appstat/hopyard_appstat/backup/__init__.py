"""Backups of a cluster's data directory: the database, the blobs of the store, and the tokens.

`create` reads a data directory, also of a running cluster, and adds a generation to a target folder. `verify` reads everything in a
target, and `restore` makes a new data directory of a generation. `plugin` is what the command line loads.

A target folder contains:

    hopyard-backup.json              the format, the cluster, and the numbers of the generations (`target.Head`)
    generations/NUMBER.json          one manifest for each generation (`manifest.BackupManifest`); written last
    databases/<sha256>.sqlite        copies of the database
    blobs/<first two digits>/<sha256>  blobs; generations share them
    incoming/                        files that are being written
    lock                             locked by a process that writes, or shared by those that read
"""
