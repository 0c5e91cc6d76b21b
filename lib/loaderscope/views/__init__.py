"""How records are shown: pictures, HTML, panels. All but panels are pure functions of records."""
