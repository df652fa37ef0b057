"""The fault zoo: small trainings on the digits whose health is known, recorded as a user would.

`scenarios` is the table, `training` the one loop that all of them share, `runs` trains them in
parallel and keeps what they recorded, `peers` are the published rules of other tools.
"""
