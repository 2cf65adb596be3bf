"""What a simulation says: numbers, tables, pictures and one page.

`answers.answers_of` counts one `History`. `results` joins the answers of several seeds and compares
two configurations. `tables` has the tables of the command line and of the page, `pictures` the
drawings, and `page` and `files` what `iris simulate --out` writes.
"""
