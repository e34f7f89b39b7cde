const jobs = {}; for (let i = 0; i < 5000; i++) jobs["j" + i] = async () => {};
export default Keep.workflow({ name: "w", topics: [], jobs });