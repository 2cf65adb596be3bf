"""What the pages can change, if the dashboard was started with that right.

`table.py` lists the actions: each is a question, some fields, and a call of the client. `forms.py`
asks the question on a page of its own and performs the action when the form comes back.
`browser.py` has the token that shows that the form is from this dashboard.
"""
